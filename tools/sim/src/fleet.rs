//! The world with those who act in it: control, and a process on each machine that is up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use model::id::{ApplianceId, AssetVersionId};
use upkeep::Ledger as _;

use crate::control::Control;
use crate::front::Front;
use crate::process::Process;
use crate::world::{Machine, World};

pub(crate) struct Fleet {
    world: Rc<World>,
    pub(crate) control: Rc<Control>,
    pub(crate) fronts: Vec<Rc<Front>>,
    /// By the machine's index.
    processes: RefCell<BTreeMap<usize, Rc<Process>>>,
}

pub(crate) const FRONTS: u64 = 2;

impl Fleet {
    /// Machines that are off.
    pub(crate) fn new(world: Rc<World>, control: Rc<Control>) -> Rc<Self> {
        let fronts = (0..FRONTS).map(|number| Front::new(&world, &control, number)).collect();
        Rc::new(Self { world, control, fronts, processes: RefCell::default() })
    }

    pub(crate) fn process(&self, machine: &Machine) -> Option<Rc<Process>> {
        self.processes.borrow().get(&machine.index).cloned()
    }

    /// A process runs on its machine from now on.
    pub(crate) fn put(&self, process: &Rc<Process>) {
        process.machine.is_up.set(true);
        self.processes.borrow_mut().insert(process.machine.index, Rc::clone(process));
    }

    /// True if an appliance runs and holds all of a version.
    pub(crate) fn has_all(&self, id: &ApplianceId, version: &AssetVersionId) -> bool {
        let machines = self.machines.borrow();
        let machine = machines.iter().find(|machine| machine.id == *id);
        let (process, files) = (machine.and_then(|of| self.process(of)), self.files_of.borrow());
        let Some((process, objects)) = process.zip(files.get(version)) else { return false };
        objects.iter().all(|object| process.locate(object).is_some())
    }

    pub(crate) fn take(&self, machine: &Machine) -> Option<Rc<Process>> {
        machine.is_up.set(false);
        self.processes.borrow_mut().remove(&machine.index)
    }
}

impl Deref for Fleet {
    type Target = Rc<World>;

    fn deref(&self) -> &Rc<World> {
        &self.world
    }
}
