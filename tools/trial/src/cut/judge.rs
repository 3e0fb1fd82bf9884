//! Opens a state with the real appliance and asks for every object.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use model::id::ObjectId;
use rig::stage::{Film, Got, Object, Setup, Stage, Viewer};
use std::collections::BTreeSet;

use super::image::Image;

/// What there is to ask for: objects with the place where a viewer finds them.
pub(crate) struct Catalogue {
    entries: Vec<(String, Object)>,
}

/// A state and what must be in it.
pub(crate) struct Case {
    /// For messages: where the cut was and what was kept.
    pub(crate) name: String,
    pub(crate) image: Image,
    /// Published before the cut, and still wanted.
    pub(crate) required: BTreeSet<ObjectId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Served bytes that were not the object's.
    pub(crate) wrong_bytes: u64,
    /// Published objects that are not served.
    pub(crate) lost_objects: u64,
    /// Answers that broke off: the index speaks of a file that is not whole.
    pub(crate) broken: u64,
    pub(crate) findings: Vec<String>,
}

/// An audit of a drive of a few files takes under a second.
const AUDIT_MAX: Duration = Duration::from_secs(20);
/// What the appliance logs when it has compared index and files.
const AUDITED: &str = "drive audited";

impl Catalogue {
    pub(crate) fn new(stage: &Stage, films: &[&Film]) -> Result<Self> {
        let mut entries = Vec::new();
        for film in films {
            let base = stage.base(film)?;
            entries.extend(film.objects.iter().map(|object| (base.clone(), object.clone())));
        }
        Ok(Self { entries })
    }

    /// The objects that are not empty, with their places.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &(String, Object)> {
        self.entries.iter().filter(|(_, object)| !object.blocks.is_empty())
    }
}

/// Makes the state real in `folder`, opens it, and looks twice: as soon as the appliance listens,
/// and when its audit is over. The folder is removed again.
pub(crate) fn judge(
    stage: &Stage,
    catalogue: &Catalogue,
    slot: usize,
    folder: &Path,
    case: &Case,
) -> Result<Verdict> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    case.image.write(folder)?;
    let mut verdict = Verdict::default();
    let drives: [PathBuf; 1] = [folder.join("drive")];
    let name = format!("judge-{slot}");
    let state = folder.join("state");
    let setup = Setup { control: false, ..Setup::new(&name, &drives, &state) };
    let mut appliance = match stage.start(&setup) {
        Ok(appliance) => appliance,
        Err(error) => {
            rig::stop::check()?;
            let lost = u64::try_from(case.required.len())?;
            verdict.lost_objects = lost.max(1);
            verdict.findings.push(format!("{}: does not start: {error:#}", case.name));
            return Ok(verdict);
        }
    };
    let viewer = Viewer::new(appliance.address);
    look(&viewer, catalogue, case, "at the start", &mut verdict);
    rig::until("an audit", AUDIT_MAX, Duration::from_millis(5), || {
        Ok(appliance.log_text().contains(AUDITED))
    })
    .with_context(|| appliance.log_text())?;
    look(&viewer, catalogue, case, "after the audit", &mut verdict);
    if !appliance.is_running() {
        verdict.findings.push(format!("{}: ended: {}", case.name, appliance.log_text()));
        verdict.lost_objects += 1;
    }
    appliance.kill();
    std::fs::remove_dir_all(folder)?;
    Ok(verdict)
}

fn look(viewer: &Viewer, catalogue: &Catalogue, case: &Case, when: &str, verdict: &mut Verdict) {
    for (base, object) in catalogue.entries() {
        let got = viewer.get(base, object);
        let required = case.required.contains(&object.id());
        match got {
            Got::Right => continue,
            Got::Wrong(bytes) => verdict.wrong_bytes += bytes,
            Got::Refused if !required => continue,
            Got::Broken if !required => verdict.broken += 1,
            Got::Refused | Got::Broken => verdict.lost_objects += 1,
        }
        verdict.findings.push(format!(
            "{}, {when}: {} ({}): {got:?}{}",
            case.name,
            object.path,
            object.id(),
            if required { ", published before" } else { "" }
        ));
    }
}
