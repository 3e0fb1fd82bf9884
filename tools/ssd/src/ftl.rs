//! Where each page lies, and which block is collected next. No time passes here.
//!
//! ```text
//! logical page ──map──> physical page        per die:  free blocks
//!       ^                    |                         host's open block
//!       └──────owner─────────┘                         collection's open block, its victim
//! ```
//!
//! A log per die. The host's pages go round the dies in turn; what collection moves stays on its
//! die, in a block of its own, so that old and new do not mix. The victim is the full block with
//! the fewest valid pages (greedy). A die on which much more is valid than on others is passed
//! over.

use crate::at;

/// Sizes of the arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Dies: each does one thing at a time.
    pub dies: u32,
    pub blocks_per_die: u32,
    pub pages_per_block: u32,
    /// Pages that the host may address.
    pub logical_pages: u32,
}

impl Shape {
    /// A shape with this much spare space by logical space, in thousandths.
    ///
    /// Fewer than eight spare blocks per die inflate write amplification, and are refused.
    pub fn with_spare(dies: u32, blocks: u32, pages: u32, spare_permille: u32) -> Self {
        let physical = u64::from(dies) * u64::from(blocks) * u64::from(pages);
        let logical = physical * 1000 / (1000 + u64::from(spare_permille));
        let logical_pages = u32::try_from(logical).expect("a model of less than 2^32 pages");
        assert!(
            u64::from(dies) * u64::from(pages) * 8 <= physical - logical,
            "a die needs eight spare blocks: give it more blocks"
        );
        Self { dies, blocks_per_die: blocks, pages_per_block: pages, logical_pages }
    }

    /// Pages of one block on every die: what a run of sequential writes fills.
    pub fn superblock_pages(&self) -> u32 {
        self.dies * self.pages_per_block
    }

    fn physical_pages(&self) -> u32 {
        self.dies * self.blocks_per_die * self.pages_per_block
    }
}

/// What was programmed and erased, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    pub host_pages: u64,
    pub moved_pages: u64,
    pub erases: u64,
}

impl Wear {
    /// Pages programmed per page of the host since `earlier`; 1 if there were none.
    pub fn amplification_since(&self, earlier: &Self) -> f64 {
        let host = self.host_pages - earlier.host_pages;
        let moved = self.moved_pages - earlier.moved_pages;
        if host == 0 { 1.0 } else { 1.0 + ratio(moved, host) }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    let small = |n: u64| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    small(part) / small(whole)
}

/// Nothing there: never written, or trimmed.
const NOWHERE: u32 = u32::MAX;
/// In the write buffer, on its way to a die.
const BUFFERED: u32 = u32::MAX - 1;

/// Where a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Nowhere,
    Buffered,
    At { die: u32, block: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Open,
    Full,
    Victim,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    next: u32,
}

#[derive(Clone, Debug, Default)]
struct Die {
    free: Vec<u32>,
    host: Option<Open>,
    moved: Option<Open>,
    /// The block that is emptied, and how far.
    victim: Option<Open>,
    /// Pages the host gains by this victim, and pages that must be moved for them.
    gain: u32,
    cost: u32,
    /// Valid pages.
    live: u32,
}

/// Blocks that a die keeps for open blocks and collection: beyond, the host's pages go elsewhere.
/// Where files are large, what is overwritten does not lie evenly, and one die would fill up.
const KEPT_BLOCKS: u32 = 6;

/// The map and the blocks of a drive.
#[derive(Clone, Debug)]
pub struct Ftl {
    shape: Shape,
    map: Vec<u32>,
    owner: Vec<u32>,
    valid: Vec<u32>,
    state: Vec<State>,
    reads: Vec<u32>,
    dies: Vec<Die>,
    turn: u32,
    wear: Wear,
}

impl Ftl {
    /// All blocks erased.
    pub fn new(shape: Shape) -> Self {
        let blocks = shape.dies * shape.blocks_per_die;
        let mut dies = vec![Die::default(); at(shape.dies)];
        for (first, die) in (0..).step_by(at(shape.blocks_per_die)).zip(&mut dies) {
            die.free = (first..first + shape.blocks_per_die).rev().collect();
        }
        Self {
            shape,
            map: vec![NOWHERE; at(shape.logical_pages)],
            owner: vec![NOWHERE; at(shape.physical_pages())],
            valid: vec![0; at(blocks)],
            state: vec![State::Free; at(blocks)],
            reads: vec![0; at(blocks)],
            dies,
            turn: 0,
            wear: Wear::default(),
        }
    }

    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What was programmed and erased so far.
    pub fn wear(&self) -> Wear {
        self.wear
    }

    /// Erased blocks of a die.
    pub fn free_blocks(&self, die: u32) -> u32 {
        crate::count(self.dies[at(die)].free.len())
    }

    /// True if the page was written and not trimmed since.
    pub fn holds(&self, page: u32) -> bool {
        self.place(page) != Place::Nowhere
    }

    /// Writes a page in no time, collecting as it must: how a drive is aged before a run.
    pub fn write_now(&mut self, page: u32, free_blocks_min: u32) {
        let die = self.next_die();
        while self.free_blocks(die) <= free_blocks_min.max(1) && self.start_victim(die, true) {
            while self.move_next(die).is_some() {}
            self.erase_victim(die);
        }
        self.buffer(page);
        assert!(self.program(die, page), "collection has made room");
    }

    /// Forgets a page: what a trim does.
    pub fn trim(&mut self, page: u32) {
        self.invalidate(page);
        self.map[at(page)] = NOWHERE;
    }

    pub(crate) fn place(&self, page: u32) -> Place {
        match self.map[at(page)] {
            NOWHERE => Place::Nowhere,
            BUFFERED => Place::Buffered,
            physical => {
                let block = physical / self.shape.pages_per_block;
                Place::At { die: block / self.shape.blocks_per_die, block }
            }
        }
    }

    /// Which die the host's next page goes to.
    pub(crate) fn next_die(&mut self) -> u32 {
        let blocks = self.shape.blocks_per_die.saturating_sub(KEPT_BLOCKS);
        let most = blocks * self.shape.pages_per_block;
        let mut die = self.turn;
        for _ in 1..self.shape.dies {
            if self.dies[at(die)].live < most {
                break;
            }
            die = self.after(die);
        }
        self.turn = self.after(die);
        die
    }

    fn after(&self, die: u32) -> u32 {
        if die + 1 == self.shape.dies { 0 } else { die + 1 }
    }

    /// The host's page is in the write buffer; what it replaces is not valid any more.
    pub(crate) fn buffer(&mut self, page: u32) {
        self.invalidate(page);
        self.map[at(page)] = BUFFERED;
    }

    /// True if the host may program a page on this die: one free block is collection's.
    pub(crate) fn has_room(&self, die: u32) -> bool {
        let die = &self.dies[at(die)];
        die.host.is_some() || 1 < die.free.len()
    }

    /// Programs a page that was in the buffer, unless there is no room.
    pub(crate) fn program(&mut self, die: u32, page: u32) -> bool {
        if !self.has_room(die) {
            return false;
        }
        let open = self.dies[at(die)].host.take();
        let (physical, open) = self.append(die, open);
        self.dies[at(die)].host = open;
        self.wear.host_pages += 1;
        assert!(self.state[at(physical / self.shape.pages_per_block)] != State::Free, "it is open");
        // Trimmed meanwhile: it is programmed all the same, and nobody's.
        if self.map[at(page)] != NOWHERE {
            self.invalidate(page);
            self.settle(page, physical);
        }
        true
    }

    /// Chooses a victim if there is none. `any`: else only one that gains something.
    pub(crate) fn start_victim(&mut self, die: u32, any: bool) -> bool {
        if self.dies[at(die)].victim.is_some() {
            return true;
        }
        let first = die * self.shape.blocks_per_die;
        let full = (first..first + self.shape.blocks_per_die)
            .filter(|block| self.state[at(*block)] == State::Full);
        let Some(block) = full.min_by_key(|block| self.valid[at(*block)]) else { return false };
        if !any && self.valid[at(block)] == self.shape.pages_per_block {
            return false;
        }
        self.take_victim(die, block);
        true
    }

    /// Makes a block the victim because it was read too often; not if there is one, or it is open.
    pub(crate) fn force_victim(&mut self, die: u32, block: u32) -> bool {
        if self.dies[at(die)].victim.is_some() || self.state[at(block)] != State::Full {
            return false;
        }
        self.take_victim(die, block);
        true
    }

    fn take_victim(&mut self, die: u32, block: u32) {
        self.state[at(block)] = State::Victim;
        let valid = self.valid[at(block)];
        assert!(valid <= self.shape.pages_per_block, "no more is valid than there is");
        let die = &mut self.dies[at(die)];
        assert!(die.victim.is_none(), "a die empties one block at a time");
        die.victim = Some(Open { block, next: 0 });
        (die.gain, die.cost) = (self.shape.pages_per_block - valid, valid);
    }

    pub(crate) fn has_victim(&self, die: u32) -> bool {
        self.dies[at(die)].victim.is_some()
    }

    /// True if nothing on the victim is valid any more, so that it can be erased.
    pub(crate) fn victim_is_empty(&self, die: u32) -> bool {
        self.dies[at(die)].victim.is_some_and(|victim| self.valid[at(victim.block)] == 0)
    }

    /// Pages to move for pages gained by this victim.
    pub(crate) fn victim_terms(&self, die: u32) -> (u32, u32) {
        let die = &self.dies[at(die)];
        (die.cost, die.gain)
    }

    /// Moves the victim's next valid page; None when there is none left.
    pub(crate) fn move_next(&mut self, die: u32) -> Option<u32> {
        let pages = self.shape.pages_per_block;
        let mut victim = self.dies[at(die)].victim?;
        while victim.next < pages {
            let physical = victim.block * pages + victim.next;
            victim.next += 1;
            let page = self.owner[at(physical)];
            if page != NOWHERE && self.map[at(page)] == physical {
                self.dies[at(die)].victim = Some(victim);
                let open = self.dies[at(die)].moved.take();
                let (to, open) = self.append(die, open);
                self.dies[at(die)].moved = open;
                self.invalidate(page);
                self.settle(page, to);
                self.wear.moved_pages += 1;
                return Some(page);
            }
        }
        self.dies[at(die)].victim = Some(victim);
        None
    }

    /// Erases the victim, all of which was moved or forgotten.
    pub(crate) fn erase_victim(&mut self, die: u32) {
        let Some(victim) = self.dies[at(die)].victim.take() else { return };
        assert_eq!(self.valid[at(victim.block)], 0, "valid pages are never erased");
        self.state[at(victim.block)] = State::Free;
        self.reads[at(victim.block)] = 0;
        self.dies[at(die)].free.insert(0, victim.block);
        self.wear.erases += 1;
    }

    /// Counts a read of a block; true if it is one too many.
    pub(crate) fn disturb(&mut self, block: u32, limit: u32) -> bool {
        let reads = &mut self.reads[at(block)];
        *reads += 1;
        limit <= *reads
    }

    fn append(&mut self, die: u32, open: Option<Open>) -> (u32, Option<Open>) {
        let mut open = open.unwrap_or_else(|| {
            let block = self.dies[at(die)].free.pop().expect("a block is kept for collection");
            self.state[at(block)] = State::Open;
            Open { block, next: 0 }
        });
        assert!(open.next < self.shape.pages_per_block, "a full block is not open");
        let physical = open.block * self.shape.pages_per_block + open.next;
        open.next += 1;
        if open.next == self.shape.pages_per_block {
            self.state[at(open.block)] = State::Full;
            return (physical, None);
        }
        (physical, Some(open))
    }

    fn settle(&mut self, page: u32, physical: u32) {
        assert!(physical < BUFFERED, "a page settles on a die");
        self.map[at(page)] = physical;
        self.owner[at(physical)] = page;
        let block = physical / self.shape.pages_per_block;
        self.valid[at(block)] += 1;
        self.dies[at(block / self.shape.blocks_per_die)].live += 1;
    }

    fn invalidate(&mut self, page: u32) {
        let physical = self.map[at(page)];
        if physical < BUFFERED {
            let block = physical / self.shape.pages_per_block;
            assert!(0 < self.valid[at(block)], "a page was valid once");
            self.valid[at(block)] -= 1;
            self.dies[at(block / self.shape.blocks_per_die)].live -= 1;
        }
    }
}
