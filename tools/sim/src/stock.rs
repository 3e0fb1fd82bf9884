//! What a fleet is given: drives, and versions of titles with their objects.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use director::{Change, Version};
use model::manifest::{AssetVersion, File};
use ssd::Class;

use crate::drive::Drive;
use crate::fleet::Fleet;
use crate::opened;
use crate::stage::Stage;
use crate::world::Object;

pub(crate) fn drive(stage: &Stage) -> Rc<Drive> {
    let class = stage.pick(&Class::ALL).copied().unwrap_or(Class::SataDc);
    // Now and then a drive that is soon full.
    let mib = if stage.one_in(5) { stage.between(2, 6) } else { 64 };
    let drive = Drive::new(stage, class, mib << 20);
    opened::format(&drive);
    drive
}

/// A version of one of two assets becomes current, with objects of its own and of others.
pub(crate) fn new_version(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    let number = fleet.versions.get() + 1;
    fleet.versions.set(number);
    let asset = if number % 2 == 1 { "film" } else { "series" };
    let mut files = BTreeMap::new();
    for index in 0..stage.between(1, 6) {
        let known: Vec<Rc<Object>> = fleet.objects.borrow().values().cloned().collect();
        let object = stage.pick(&known).filter(|_| stage.one_in(5)).cloned();
        let object = object.unwrap_or_else(|| {
            let len = object_len(stage);
            Object::draw(stage, len)
        });
        fleet.objects.borrow_mut().insert(object.id, Rc::clone(&object));
        let content_type = "video/mp4".into();
        let file = File { object: object.id, len: object.len(), content_type };
        files.insert(format!("{index}.mp4"), file);
    }
    let objects = files.values().map(|file| file.object).collect();
    let version = AssetVersion {
        id: format!("{asset}-{number}").parse().expect("a name"),
        asset: asset.parse().expect("a name"),
        sources: vec!["https://origin/".to_owned()],
        modified: fleet.wall(),
        pace: None,
        files,
    };
    fleet.files_of.borrow_mut().insert(version.id.clone(), objects);
    stage.say(|| format!("{} has {} files", version.id, version.files.len()));
    let version = Version::new(Arc::new(version), Vec::new(), number);
    let first = fleet.next_file.get();
    let count = u32::try_from(version.objects().len()).expect("a few");
    fleet.next_file.set(first + count);
    let version = version.numbered(Some(first));
    fleet.control.change(Change::Version(Arc::new(version)));
}

/// Another certificate is refused; those before have ended.
pub(crate) fn revoke(fleet: &Rc<Fleet>) {
    let serial = format!("{:04x}", fleet.stage.below(1 << 16));
    fleet.stage.say(|| format!("{serial} is revoked"));
    fleet.control.change(Change::Revoked([serial].into()));
}

/// Around every edge: small, one block, a few, and a byte more or less.
fn object_len(stage: &Stage) -> usize {
    let block = 262_144;
    let len = match stage.below(8) {
        0 => stage.between(1, 5000),
        1 => stage.between(60_000, 70_000),
        2 => block + stage.below(3) - 1,
        3 => 2 * block + stage.below(3) - 1,
        4 => stage.below(4) * 4096,
        _ => stage.between(70_000, 1_200_000),
    };
    usize::try_from(len).unwrap_or(1)
}
