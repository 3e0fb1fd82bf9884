//! What control has for fronts: the counterpart of `shell/control`'s `state/writer/replication`.

use std::collections::BTreeMap;

use director::Desired;
use director::difference::{Check, Difference, Step, between};
use director::following::{Asks, Log, Picture, next_generation};
use model::id::Generation;
use model::units::{Nanos, UnixSeconds};

/// What fronts were given last, and the differences that led there.
pub(crate) struct Replication {
    /// None before the first front has asked this process.
    last: Option<(Picture, Check)>,
    /// The last whole one that was given, while it is good for others.
    whole: Option<Picture>,
    log: Log<Difference>,
    /// Durable, before any front sees it.
    durable: Generation,
    /// For the oracle: what each generation stands for. The newest is as durable.
    given: BTreeMap<Generation, Desired>,
}

/// What a front is given.
pub(crate) enum Given {
    Nothing,
    Whole(Box<Picture>),
    Run(Vec<Difference>),
}

/// Few, so that fronts are left behind.
const LOG_LEN_MAX: usize = 4;

impl Replication {
    /// Nothing was given to anybody.
    pub(crate) fn new() -> Self {
        let (durable, given) = (Generation(0), BTreeMap::new());
        Self { last: None, whole: None, log: Log::new(LOG_LEN_MAX), durable, given }
    }

    /// The process ends: what is not durable is gone.
    pub(crate) fn forget(&mut self) {
        (self.last, self.whole, self.log) = (None, None, Log::new(LOG_LEN_MAX));
    }

    /// The answer to a front.
    pub(crate) fn answer(
        &mut self,
        desired: Desired,
        (manifests, issued): (Generation, UnixSeconds),
        asks: Asks,
    ) -> Given {
        self.look(desired, manifests, issued);
        let Some((newest, _)) = &self.last else { return Given::Nothing };
        let known = match asks {
            Asks::Nothing => return Given::Nothing,
            Asks::Whole(known) => {
                let is_good = |whole: &Picture| {
                    let generation = whole.generation;
                    let leads_on = || self.log.leads_on(generation, Nanos(0), known);
                    generation == newest.generation || leads_on()
                };
                let whole = self.whole.take().filter(is_good).unwrap_or_else(|| newest.clone());
                return Given::Whole(Box::new(self.whole.insert(whole).clone()));
            }
            Asks::Newer(known) => known,
        };
        assert!(known <= newest.generation, "a front has {known}, which is durable nowhere");
        if known == newest.generation {
            return Given::Nothing;
        }
        match self.log.since(known) {
            Some(run) => Given::Run(run.cloned().collect()),
            None => Given::Whole(Box::new(newest.clone())),
        }
    }

    fn look(&mut self, desired: Desired, manifests: Generation, issued: UnixSeconds) {
        let Some((last, check)) = &self.last else {
            // By its weight, in the shell.
            let known = self.given.get(&self.durable);
            if known.is_none_or(|known| between(known, &desired).is_some()) {
                self.durable = next_generation(self.durable, issued);
            }
            let check = Check::of(&desired);
            return self
                .put(Picture { generation: self.durable, issued, manifests, desired }, check);
        };
        let Some(step) = between(&last.desired, &desired) else { return };
        let (from, generation) = (last.generation, next_generation(last.generation, issued));
        let check = step.check(*check);
        let Step { changed, gone, .. } = step;
        let found = Difference { from, generation, issued, manifests, changed, gone, check };
        self.durable = generation;
        self.log.push(from, found, 1);
        self.put(Picture { generation, issued, manifests, desired }, check);
    }

    fn put(&mut self, picture: Picture, check: Check) {
        self.given.insert(picture.generation, picture.desired.clone());
        self.last = Some((picture, check));
    }

    /// What a generation stands for.
    pub(crate) fn given(&self, generation: Generation) -> Option<&Desired> {
        self.given.get(&generation)
    }
}
