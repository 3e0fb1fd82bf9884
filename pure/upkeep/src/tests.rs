//! Procedures on a drive in memory that writes its steps down and fails at one of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use holdings::Holdings;
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::{Bytes, Instant, Nanos};
use store::absence::Seen;
use store::layout;
use store::log::{Change, Entry};
use store::parcel::{Parcel, PartId};
use store::unit::UnitId;

use crate::publish::{self, Part};
use crate::*;

const DRIVE: DriveIndex = DriveIndex(2);

/// A drive that has no bytes, only names and sizes.
struct Steps {
    done: RefCell<Vec<String>>,
    /// The step that fails, and how.
    fails: Cell<Option<(usize, Errno)>>,
    lens: RefCell<BTreeMap<FileName, Bytes>>,
    entries: RefCell<BTreeMap<ObjectId, Entry>>,
    is_aside: Cell<bool>,
    condition: RefCell<Condition>,
}

/// Any number of objects may fail.
const CONDITION: condition::Config = condition::Config {
    health: store::health::Config { objects_max: usize::MAX - 1, window: Nanos(0) },
    silence: store::silence::Config { answers_for: Nanos(0), hangs_for: Nanos(0) },
    measure_max: Nanos(0),
    full_for: Nanos(0),
};

impl Default for Steps {
    fn default() -> Self {
        let space = Space { capacity: Bytes::mib(1024), free: Bytes::mib(1024) };
        Self {
            done: RefCell::default(),
            fails: Cell::default(),
            lens: RefCell::default(),
            entries: RefCell::default(),
            is_aside: Cell::default(),
            condition: RefCell::new(Condition::new(CONDITION, space, (0, Bytes::ZERO))),
        }
    }
}

struct House {
    drive: Rc<Steps>,
    holdings: RefCell<Holdings>,
}

impl Steps {
    fn step(&self, name: String) -> Result<(), DriveError> {
        let fails = self.fails.get().filter(|(at, _)| *at == self.done.borrow().len());
        self.done.borrow_mut().push(name);
        fails.map_or(Ok(()), |(_, errno)| Err(DriveError::new("do", "that", errno)))
    }

    fn steps(&self) -> String {
        self.done.borrow().join(" ")
    }
}

impl Files for Steps {
    type File = FileName;
    type Pages = Vec<u8>;

    fn pages(len: Bytes) -> Vec<u8> {
        vec![0; len.align_up(model::limits::DIRECT_ALIGN).as_usize()]
    }

    async fn open(&self, file: &FileName) -> Result<FileName, DriveError> {
        Ok(file.clone())
    }

    async fn len(&self, file: &FileName) -> Result<Bytes, DriveError> {
        Ok(self.lens.borrow().get(file).copied().unwrap_or_default())
    }

    async fn read(&self, _: &FileName, _: &mut [u8], _: Bytes) -> Result<(), DriveError> {
        Err(DriveError::short("it has no bytes"))
    }

    async fn list(&self, _: &FileName) -> Result<Vec<String>, DriveError> {
        Ok(Vec::new())
    }
}

impl Drive for Steps {
    fn index(&self) -> DriveIndex {
        DRIVE
    }

    fn is_aside(&self) -> bool {
        self.is_aside.get()
    }

    fn condition<R>(&self, with: impl FnOnce(&mut Condition) -> R) -> R {
        with(&mut self.condition.borrow_mut())
    }

    async fn has_marker(&self) -> bool {
        true
    }

    fn entry(&self, object: &ObjectId) -> Option<Entry> {
        self.entries.borrow().get(object).copied()
    }

    fn in_unit(&self, _: UnitId) -> Vec<ObjectId> {
        Vec::new()
    }

    async fn allocate(&self, file: &FileName, len: Bytes) -> Result<(FileName, bool), DriveError> {
        self.step(format!("allocate({})", len.0))?;
        self.lens.borrow_mut().insert(file.clone(), len);
        Ok((file.clone(), false))
    }

    async fn write(&self, _: &FileName, _: &[u8], at: Bytes) -> Result<(), DriveError> {
        self.step(format!("write({})", at.0))
    }

    async fn cut(&self, _: &FileName, len: Bytes) -> Result<(), DriveError> {
        self.step(format!("cut({})", len.0))
    }

    async fn flush(&self, _: &FileName) -> Result<(), DriveError> {
        self.step("flush".to_owned())
    }

    async fn rename(&self, _: &FileName, _: &FileName) -> Result<(), DriveError> {
        self.step("rename".to_owned())
    }

    async fn flush_folder(&self, folder: &FileName) -> Result<(), DriveError> {
        self.step(format!("flush({})", folder.0))
    }

    async fn unlink(&self, file: &FileName) -> Result<(), DriveError> {
        self.step(format!("unlink({})", &file.0[..4]))
    }

    async fn rewrite_index(&self) -> Result<(), DriveError> {
        self.step("rewrite the index".to_owned())
    }

    async fn scrubbed_to(&self) -> Option<ObjectId> {
        None
    }

    async fn keep_scrubbed_to(&self, _: ObjectId) -> Result<(), DriveError> {
        Ok(())
    }

    async fn log(&self, changes: &[Change]) -> Result<(), DriveError> {
        self.step(format!("log({})", changes.len()))?;
        for change in changes {
            store::log::apply(&mut self.entries.borrow_mut(), *change);
        }
        Ok(())
    }
}

impl Host for House {
    type Drive = Steps;
    type Keep = Rc<Steps>;

    fn now(&self) -> Instant {
        Instant(0)
    }

    fn is_stopping(&self) -> bool {
        false
    }

    async fn sleep_until(&self, _: Instant) -> bool {
        true
    }

    fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        look(&self.holdings.borrow())
    }

    fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        change(&mut self.holdings.borrow_mut())
    }

    async fn wait_for<T>(&self, _: News, _: impl FnMut(&mut Holdings) -> Option<T>) -> Option<T> {
        None
    }

    async fn pause(&self) {}

    async fn wait_changed(&self, _: impl Fn(&Holdings) -> Nanos) -> bool {
        false
    }

    fn wake_hands(&self) {}

    async fn next_sample(&self) -> Option<Sample> {
        None
    }

    fn returns(&self) -> u64 {
        0
    }

    fn drives(&self) -> Vec<Rc<Steps>> {
        vec![Rc::clone(&self.drive)]
    }

    fn drive(&self, _: DriveIndex) -> Option<Rc<Steps>> {
        Some(Rc::clone(&self.drive))
    }

    fn linger(&self) -> Nanos {
        Nanos(0)
    }

    fn take_out(&self, drive: &Steps, _: &Cause) -> Option<Rc<Steps>> {
        drive.is_aside.set(true);
        None
    }

    fn tell(&self, told: Told<'_, Steps>) {
        if let Told::Shows(drive, objects) = told {
            drive.done.borrow_mut().push(format!("show({})", objects.len()));
        }
    }
}

impl House {
    fn new() -> Self {
        let config = holdings::Config {
            plan: fill::plan::Config { fetch_max: 1, evict_max: 1, urls_max: 1 },
            inventory_changes_max: 1,
            suspects_max: 1,
            small_budget: Bytes::ZERO,
            unit_len: None,
        };
        Self { drive: Rc::default(), holdings: RefCell::new(Holdings::new(config)) }
    }

    fn failing(at: usize, errno: Errno) -> Self {
        let house = Self::new();
        house.drive.fails.set(Some((at, errno)));
        house
    }

    /// A house in which somebody works on what is in this parcel.
    fn busy_with(parcel: &Parcel) -> Self {
        let house = Self::new();
        house.claim_for(parcel);
        house
    }

    fn claim_for(&self, parcel: &Parcel) {
        let objects: Vec<_> = parcel.entries().iter().map(|(object, _)| *object).collect();
        assert!(self.claim_all(&objects));
    }

    fn begin(&self, parcel: Parcel) -> Result<Part<'_, Self>, Fault> {
        self.claim_for(&parcel);
        at_once(Part::begin(self, &*self.drive, parcel))
    }

    /// Writes all of an object, as a filler does.
    fn write(&self, part: &mut Part<'_, Self>, blocks: &Blocks) -> Result<(), DriveError> {
        at_once(async {
            part.write_table(blocks).await?;
            for index in 0..u64::try_from(blocks.hashes().len()).unwrap() {
                part.write_block(index, &[0; 4096]).await?;
            }
            Ok(())
        })
    }

    fn finish(&self, part: &mut Part<'_, Self>) -> Result<(), DriveError> {
        at_once(async {
            let flushed = part.close().await?;
            let logged = part.enter(flushed).await?;
            publish::show(self, &*self.drive, logged, None);
            Ok(())
        })
    }

    /// All steps of objects, and whether they are shown; those left as parts.
    fn publish(&self, parcel: &Parcel, contents: &[Blocks]) -> Result<(), Fault> {
        let mut part = self.begin(parcel.clone())?;
        let written = contents.iter().try_for_each(|blocks| self.write(&mut part, blocks));
        let done = written.and_then(|()| self.finish(&mut part));
        done.map_err(|error| {
            at_once(self.failed(&self.drive, &error));
            at_once(part.abandon(error.fault));
            error.fault
        })
    }

    fn shown(&self) -> usize {
        self.holdings.borrow().index().len()
    }
}

/// An object of zeros.
fn zeros(len: usize) -> Blocks {
    let bytes = vec![0; len];
    let pieces: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
    let is_single = pieces.len() == 1;
    let hashes = (0..).zip(&pieces).map(|(index, piece)| block_hash(index, piece, is_single));
    Blocks::of_hashes(Bytes::of(len), hashes.collect()).unwrap()
}

fn parcel(contents: &[Blocks]) -> Parcel {
    let objects: Vec<_> = contents.iter().map(|blocks| (blocks.id(), blocks.len())).collect();
    Parcel::new(&objects).unwrap()
}

/// Three blocks, with a table.
fn alone() -> (Parcel, Vec<Blocks>) {
    let contents = vec![zeros(600_000)];
    (parcel(&contents), contents)
}

/// Two blocks with a table, an empty object, and one block.
fn unit() -> (Parcel, Vec<Blocks>) {
    let contents = vec![zeros(300_000), zeros(0), zeros(9)];
    (parcel(&contents), contents)
}

/// The folder of a parcel's file.
fn folder(parcel: &Parcel) -> String {
    parcel.folder().0.to_string()
}

#[test]
fn an_object_is_shown_after_everything_else() {
    let (house, (parcel, contents)) = (House::new(), alone());
    assert_eq!(house.publish(&parcel, &contents), Ok(()));
    let wanted = format!(
        "allocate(610304) write(602112) write(0) write(262144) write(524288) write(606208) flush \
         rename flush({}) flush(fill) log(1) show(1)",
        folder(&parcel)
    );
    assert_eq!((house.drive.steps(), house.shown()), (wanted, 1));
}

#[test]
fn an_adopted_object_goes_the_rest_of_the_way() {
    let (parcel, _) = alone();
    let house = House::busy_with(&parcel);
    let logged = at_once(publish::adopt(&*house.drive, &parcel, &parcel.entries())).unwrap();
    assert!(publish::show(&house, &*house.drive, logged, None));
    let wanted = format!("flush({}) flush(fill) log(1) show(1)", folder(&parcel));
    assert_eq!(house.drive.steps(), wanted);
}

#[test]
fn whichever_step_fails_nothing_is_shown_and_the_room_is_given_back() {
    let (house, (parcel, contents)) = (House::new(), alone());
    assert_eq!(house.publish(&parcel, &contents), Ok(()));
    let steps = house.drive.done.take();
    let rename = steps.iter().position(|step| step == "rename").unwrap();
    for errno in [Errno::NOSPC, Errno::NOENT, Errno::ROFS] {
        for at in 0..steps.len() - 1 {
            let house = House::failing(at, errno);
            assert_eq!(house.publish(&parcel, &contents), Err(errno.fault()));
            let undo = match errno.fault() {
                Fault::SetAside => "",
                Fault::Full | Fault::Io if at <= rename => " unlink(fill)",
                Fault::Full | Fault::Io => " unlink(obje)",
            };
            assert_eq!(house.drive.steps(), steps[..=at].join(" ") + undo);
            assert_eq!(house.shown(), 0);
            assert!(house.holdings.borrow().parts().is_empty(), "nothing is left of it");
        }
    }
}

#[test]
fn a_part_that_cannot_be_taken_away_is_left_to_a_plan() {
    let (house, (parcel, contents)) = (House::new(), alone());
    let mut part = house.begin(parcel.clone()).unwrap();
    house.write(&mut part, &contents[0]).unwrap();
    let next = house.drive.done.borrow().len();
    house.drive.fails.set(Some((next, Errno::NOENT)));
    at_once(part.abandon(Fault::Io));
    assert!(house.holdings.borrow().parts().contains_key(&parcel.part()));
    // As is one on a drive that hangs: nothing is done to it then.
    let house = House::new();
    at_once(house.begin(parcel.clone()).unwrap().abandon(Fault::SetAside));
    assert_eq!(house.drive.steps(), "allocate(610304)");
    assert!(house.holdings.borrow().parts().contains_key(&parcel.part()));
}

#[test]
fn nothing_is_done_to_a_drive_that_is_set_aside_in_the_middle() {
    let (house, (parcel, contents)) = (House::new(), alone());
    let mut part = house.begin(parcel).unwrap();
    house.write(&mut part, &contents[0]).unwrap();
    let before = house.drive.steps();
    house.drive.is_aside.set(true);
    let error = house.finish(&mut part).unwrap_err();
    at_once(part.abandon(error.fault));
    assert_eq!((house.drive.steps(), house.shown()), (before, 0));
}

#[test]
#[should_panic(expected = "written twice")]
fn more_blocks_than_the_object_has_are_our_own_mistake() {
    let (house, (parcel, contents)) = (House::new(), alone());
    let mut part = house.begin(parcel).unwrap();
    house.write(&mut part, &contents[0]).unwrap();
    part.keep_block();
}

#[test]
#[should_panic(expected = "all blocks are there")]
fn a_file_that_lacks_a_block_is_never_ended() {
    let (house, (parcel, contents)) = (House::new(), alone());
    let mut part = house.begin(parcel).unwrap();
    at_once(part.write_table(&contents[0])).unwrap();
    let _ = house.finish(&mut part);
}

#[test]
fn a_unit_is_shown_as_a_whole_after_everything_else() {
    let (house, (parcel, contents)) = (House::new(), unit());
    assert_eq!(house.publish(&parcel, &contents), Ok(()));
    let wanted = "allocate(323584) write(303104) write(0) write(262144) write(311296) \
                  write(315392) flush rename flush(units) flush(fill) log(3) show(3)";
    assert_eq!((house.drive.steps(), house.shown()), (wanted.to_owned(), 3));
}

#[test]
fn a_unit_that_ends_short_has_its_whole_objects_under_a_name_of_its_own() {
    let (house, (parcel, contents)) = (House::new(), unit());
    let mut part = house.begin(parcel.clone()).unwrap();
    contents[..2].iter().for_each(|blocks| house.write(&mut part, blocks).unwrap());
    house.drive.done.take();
    assert_eq!(part.whole(), 2);
    part.shorten();
    let first = parcel.first(2).unwrap();
    assert_eq!(part.parcel(), &first);
    house.finish(&mut part).unwrap();
    let wanted = "write(311296) cut(319488) flush rename flush(units) flush(fill) log(2) show(2)";
    assert_eq!((house.drive.steps(), house.shown()), (wanted.to_owned(), 2));
    assert_ne!(first.file(), parcel.file());
}

#[test]
fn a_file_that_was_there_before_is_not_removed_when_it_cannot_be_logged() {
    let (house, (parcel, _)) = (House::failing(2, Errno::NOSPC), unit());
    let entries = &parcel.entries()[1..];
    let adopted = at_once(publish::adopt(&*house.drive, &parcel, entries));
    assert_eq!(adopted.unwrap_err().fault, Fault::Full);
    assert_eq!(house.drive.steps(), "flush(units) flush(fill) log(2)");
}

#[test]
fn an_object_is_hidden_before_it_leaves_the_log_and_unlinked_last() {
    let (parcel, contents) = alone();
    let objects = [contents[0].id()];
    let remove = |fails: Option<usize>| {
        let house = House::new();
        house.publish(&parcel, &contents).unwrap();
        house.drive.done.take();
        house.drive.fails.set(fails.map(|at| (at, Errno::NOENT)));
        let is_gone =
            at_once(publish::remove(&house, &*house.drive, &parcel.file(), &objects, true));
        (is_gone, house.drive.steps(), house.shown())
    };
    let all = format!("log(1) unlink(obje) flush({})", folder(&parcel));
    assert_eq!(remove(None), (true, all, 0));
    assert_eq!(remove(Some(0)), (false, "log(1)".to_owned(), 0), "hidden first");
    assert_eq!(remove(Some(1)), (false, "log(1) unlink(obje)".to_owned(), 0));
}

#[test]
fn objects_leave_a_unit_without_its_file_unless_they_are_all() {
    let remove = |count: usize, is_whole| {
        let (parcel, contents) = unit();
        let house = House::busy_with(&parcel);
        let objects: Vec<_> = contents[..count].iter().map(Blocks::id).collect();
        let (drive, file) = (&*house.drive, parcel.file());
        assert!(at_once(publish::remove(&house, drive, &file, &objects, is_whole)));
        house.drive.steps()
    };
    assert_eq!(remove(1, false), "log(1)");
    assert_eq!(remove(3, true), "log(3) unlink(unit) flush(units)");
    assert_eq!(remove(0, true), "unlink(unit) flush(units)", "nothing in it was held");
    assert_eq!(remove(0, false), "");
}

#[test]
#[should_panic(expected = "nobody fills what is being removed")]
fn a_file_is_removed_by_who_has_claimed_what_is_in_it() {
    let (house, (parcel, contents)) = (House::new(), alone());
    let objects = [contents[0].id()];
    at_once(publish::remove(&house, &*house.drive, &parcel.file(), &objects, true));
}

#[test]
fn a_unit_that_goes_takes_all_with_it_also_what_is_wanted_since() {
    let (parcel, _) = unit();
    let Parcel::Unit(directory) = &parcel else { unreachable!("it has three objects") };
    let house = House::busy_with(&parcel);
    for (object, entry) in parcel.entries() {
        at_once(house.drive.log(&[Change::Published(object, entry)])).unwrap();
        house.change(|holdings| holdings.load(object, entry.extent(&object, DRIVE)));
    }
    // A manifest comes into force after it was decided that nothing of the unit is wanted.
    let asked = Cell::new(0);
    let is_wanted = |_: &ObjectId| asked.replace(asked.get() + 1) >= 2 * parcel.entries().len();
    at_once(units::keep_only(&house, &*house.drive, directory, is_wanted));
    assert!(house.drive.steps().ends_with("log(3) unlink(unit) flush(units)"));
    assert_eq!(house.shown(), 0, "nothing is shown of which the file is gone");
}

#[test]
fn a_copy_elsewhere_is_not_hidden_with_the_one_that_goes() {
    let (parcel, contents) = alone();
    let (house, object) = (House::busy_with(&parcel), contents[0].id());
    let entry = parcel.entries()[0].1;
    at_once(house.drive.log(&[Change::Published(object, entry)])).unwrap();
    house.change(|holdings| holdings.load(object, entry.extent(&object, DriveIndex(0))));
    assert!(at_once(publish::drop_copy(&house, &*house.drive, object)));
    assert_eq!((house.shown(), house.drive.entry(&object)), (1, None));
    assert!(house.drive.steps().ends_with(&format!("flush({})", layout_folder(&object))));
}

fn layout_folder(object: &ObjectId) -> String {
    layout::folder_of(&layout::object_file(object)).0.to_string()
}

#[test]
#[should_panic(expected = "ready when it returns")]
fn a_host_that_blocks_never_has_somebody_wait_for_it() {
    at_once(std::future::pending::<()>());
}

#[test]
fn errors_say_what_follows_for_the_drive() {
    for errno in [Errno::IO, Errno::NODATA, Errno::UCLEAN, Errno::REMOTEIO, Errno::TIMEDOUT] {
        assert!(errno.is_one_place() && errno.fault() == Fault::SetAside, "{errno}");
    }
    for errno in [Errno::ROFS, Errno::NODEV, Errno::SHUTDOWN, Errno::NOTCONN, Errno::STALE] {
        assert!(!errno.is_one_place() && errno.fault() == Fault::SetAside, "{errno}");
    }
    assert_eq!(Errno::DQUOT.fault(), Fault::Full);
    assert_eq!(Errno::NOENT.fault(), Fault::Io);
    // Whatever the reason, nobody knows what a failed flush has left.
    assert_eq!(DriveError::flush("a file", Errno(22)).fault, Fault::SetAside);
    assert_eq!(DriveError::flush("a file", Errno::NOSPC).fault, Fault::Full);
}

#[test]
fn why_a_drive_is_set_aside_is_said_in_one_place() {
    let object = ObjectId([0xab; 32]);
    let error = DriveError::new("write to", "the index", Errno::IO);
    let said = [
        (Cause::Failed(error), "cannot write to the index: Input/output error (os error 5)"),
        (Cause::Silent(Nanos::seconds(600)), "it has not answered for 600 s"),
        (Cause::Miswritten, "what was written there is not what is read"),
        (Cause::Refused("no".to_owned()), "no"),
    ];
    said.iter().for_each(|(cause, text)| assert_eq!(cause.to_string(), *text));
    let unmounted = Cause::Unmounted(layout::object_file(&object)).to_string();
    assert!(unmounted.starts_with("its marker is gone, and objects/ab/"), "{unmounted}");
    let unread = Cause::Unread(object, Errno::NODEV).to_string();
    assert!(unread.starts_with("cannot read object abab"), "{unread}");
}

/// The place of a drive that is mounted anew with each measure, and set aside during the last.
struct Spot {
    mounts: u64,
    last: u64,
}

impl absence::Place for Spot {
    type Host = House;
    type New = Rc<Steps>;

    fn index(&self) -> DriveIndex {
        DRIVE
    }

    async fn look(&mut self) -> Seen {
        unreachable!("it is measured alone")
    }

    async fn measure(&mut self, drive: &Steps) -> Result<(Space, Seen), DriveError> {
        self.mounts += 1;
        drive.is_aside.set(self.mounts == self.last);
        let space = Space { capacity: Bytes::mib(1), free: Bytes::ZERO };
        Ok((space, Seen { mounts: self.mounts, ..Seen::default() }))
    }

    fn is_held(&self) -> bool {
        unreachable!("it is measured alone")
    }

    async fn open(&mut self) -> Result<absence::Found<Rc<Steps>>, String> {
        unreachable!("it is measured alone")
    }

    fn make_ready(&mut self, drive: Rc<Steps>) -> Rc<Steps> {
        drive
    }

    fn put_in_use(&mut self, _: &Rc<Steps>, _: Vec<PartId>) {}

    fn words(&self, error: DriveError) -> String {
        error.to_string()
    }
}

#[test]
fn what_comes_while_a_measure_waits_is_other_than_what_was_set_aside() {
    let seen = |last| {
        let house = House::new();
        let mut spot = Spot { mounts: 0, last };
        at_once(absence::measure(&house, &mut spot, &house.drive)).map(|seen| seen.mounts)
    };
    assert_eq!(seen(3), Some(2), "the third may be of another mount");
    assert_eq!(seen(1), Some(1), "nothing was seen before");
}
