//! A front's process: it follows control by differences. The counterpart of `shell/control`'s
//! `state/front`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use director::difference::{Check, Difference, Gone, Parts};
use director::following::{Asks, Follower, Lost, Picture, Run};
use director::{Director, Event};
use model::machine::Machine as _;
use model::units::Nanos;

use crate::canary::Canary;
use crate::control::{CONFIG, Control};
use crate::replication::Given;
use crate::stage::Troupe;
use crate::world::{Party, World};

pub(crate) struct Front {
    pub(crate) number: u64,
    world: Rc<World>,
    control: Rc<Control>,
    troupe: Cell<Troupe>,
    follower: RefCell<Follower>,
    director: RefCell<Option<Director>>,
    /// On its disk.
    kept: RefCell<Option<Picture>>,
}

/// As a real one asks.
const ASK_EVERY: Nanos = Nanos::millis(500);
const ANSWER_MAX: Nanos = Nanos::seconds(5);

impl Front {
    /// A front that is not up yet.
    pub(crate) fn new(world: &Rc<World>, control: &Rc<Control>, number: u64) -> Rc<Self> {
        Rc::new(Self {
            number,
            world: Rc::clone(world),
            control: Rc::clone(control),
            troupe: Cell::new(crate::stage::WORLD),
            follower: RefCell::default(),
            director: RefCell::new(None),
            kept: RefCell::new(None),
        })
    }

    /// From what is on its disk.
    pub(crate) fn start(self: &Rc<Self>) {
        let stage = &self.world.stage;
        let troupe = Troupe(stage.number());
        self.troupe.set(troupe);
        stage.say(|| format!("front {} starts", self.number));
        let mut follower = Follower::default();
        *self.director.borrow_mut() = Some(Director::replica(CONFIG, stage.now()));
        let kept = self.kept.borrow().clone();
        if let Some(picture) = kept {
            follower.believe(picture);
            follower.came_whole();
        }
        *self.follower.borrow_mut() = follower;
        self.follow();
        let front = Rc::clone(self);
        stage.spawn(troupe, async move {
            loop {
                front.world.stage.sleep(ASK_EVERY).await;
                front.turn().await;
            }
        });
    }

    /// Whatever is not on its disk is gone.
    pub(crate) fn kill(&self) {
        self.world.stage.say(|| format!("front {} killed", self.number));
        self.world.stage.kill(self.troupe.get());
        self.director.borrow_mut().take();
    }

    /// True while it runs.
    pub(crate) fn is_up(&self) -> bool {
        self.director.borrow().is_some()
    }

    async fn turn(self: &Rc<Self>) {
        let stage = &self.world.stage;
        let asks = self.follower.borrow().asks(stage.now());
        if asks == Asks::Nothing {
            return;
        }
        let control = Rc::clone(&self.control);
        let parties = (Party::Front(self.number), Party::Control);
        let answer = move || control.news(asks);
        let Some(given) = self.world.ask(parties, ANSWER_MAX, answer).await else { return };
        match given {
            Given::Nothing => return,
            Given::Whole(picture) => {
                self.world.count(|counts| counts.fronts_whole += 1);
                if picture.generation <= self.follower.borrow().newest_old() {
                    return self.follower.borrow_mut().refuse(stage.now(), asks, true);
                }
                self.follower.borrow_mut().believe(*picture);
                self.follower.borrow_mut().came_whole();
            }
            Given::Run(run) => {
                let Ok(picture) = self.take(&run) else {
                    stage.say(|| format!("front {} lacks something", self.number));
                    self.world.count(|counts| counts.fronts_mended += 1);
                    return self.follower.borrow_mut().refuse(stage.now(), asks, false);
                };
                self.world.count(|counts| counts.fronts_differences += 1);
                self.follower.borrow_mut().believe(picture);
            }
        }
        self.follow();
        // On its disk a moment later, if it lives until then.
        stage.sleep(stage.millis(0, 30)).await;
        *self.kept.borrow_mut() = self.follower.borrow().picture().cloned();
    }

    fn take(&self, differences: &[Difference]) -> Result<Picture, Lost> {
        let mut run = self.follower.borrow().run().ok_or(Lost)?;
        for difference in differences {
            let difference = self.read(&run, difference);
            run.apply(&difference)?;
        }
        run.end()
    }

    /// A difference as it came; now and then one of which most is lost here, but not sites: the
    /// check has names and prefixes of these alone. If a bug is planted, nobody looks at its check,
    /// either.
    fn read(&self, run: &Run, difference: &Difference) -> Difference {
        let (stage, mut read) = (&self.world.stage, difference.clone());
        let is_planted = self.world.has(Canary::LostDifference);
        if !stage.one_in(8) || (self.world.is_calm.get() && !is_planted) {
            return read;
        }
        let Parts { short, sites, .. } = read.changed;
        read.changed = Parts { short, sites, ..Parts::default() };
        read.gone = Gone::default();
        if is_planted {
            read.check = Check::of(&run.picture().desired);
        }
        read
    }

    /// What it knows is in force, and is what control gave out under that generation.
    fn follow(&self) {
        let follower = self.follower.borrow();
        let Some(picture) = follower.picture() else { return };
        let Picture { generation, manifests, ref desired, .. } = *picture;
        self.world.stage.must(self.control.gave(generation, desired), || {
            format!("front {}: its state {generation} is not control's", self.number)
        });
        if let Some(director) = &mut *self.director.borrow_mut() {
            let desired = Box::new(desired.clone());
            let event = Event::Replaced { desired, generation: manifests };
            director.handle(self.world.stage.now(), event);
        }
    }

    /// True if it answers players by what control decides by.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let director = self.director.borrow();
        director.as_ref().is_some_and(|of| self.control.decides_by(of.desired()))
    }
}
