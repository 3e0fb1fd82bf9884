//! Short manifests, and what they name.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::manifest::Manifest;

use crate::http::Server;
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

/// A control with an origin, and an appliance.
struct World {
    files: [TestFile; 3],
    origin: Server,
    control: Arc<TestControl>,
    server: Option<Server>,
    rig: Rig,
}

impl World {
    fn new() -> Self {
        let files = ["a.mp4", "b.mp4", "c.mp4"].map(|path| TestFile::new(path, 5));
        let (of, origin) = Origin::start();
        files.iter().for_each(|file| of.put(&file.path, file.bytes.clone()));
        let (control, server) = TestControl::start("127.0.0.1:0");
        let rig = Rig::new(1, Some(server.address));
        Self { files, origin, control, server: Some(server), rig }
    }

    /// Films of a file each, by their numbers.
    fn publish(&self, generation: u64, films: &[usize]) {
        let film = |n: &usize| {
            let files = std::slice::from_ref(&self.files[*n]);
            version(&format!("film-{n}"), &[self.origin.address], files)
        };
        self.control.publish(generation, films.iter().map(film).collect(), &self.files);
    }

    fn in_force(&self) -> Option<Arc<Manifest>> {
        self.rig.told.manifest.lock().unwrap().clone()
    }

    fn films(&self) -> Vec<String> {
        let versions = self.in_force().map(|manifest| manifest.versions.clone());
        versions.unwrap_or_default().iter().map(|version| version.id.to_string()).collect()
    }

    fn asked(&self) -> usize {
        self.control.documents_asked.lock().unwrap().len()
    }

    fn state(&self, name: &str) -> PathBuf {
        self.rig.config.state.join(name)
    }

    fn has_said(&self, text: &str) -> bool {
        let errors = self.control.last_report().unwrap_or_default().errors;
        errors.iter().any(|error| error.text.contains(text))
    }
}

#[test]
fn each_document_is_asked_for_once_and_is_there_after_a_restart_with_control_away() {
    let mut w = World::new();
    w.publish(1, &[0, 1]);
    let mut handle = w.rig.start();
    wait("the first", || w.films() == ["film-0", "film-1"]);
    assert_eq!(w.asked(), 2);
    w.publish(2, &[2, 1]);
    let other = vec!["http://127.0.0.1:9/film/".to_owned()];
    Arc::make_mut(&mut w.control.manifest.lock().unwrap().as_mut().unwrap().versions[1]).sources =
        other.clone();
    wait("the second", || w.films() == ["film-2", "film-1"]);
    assert_eq!(w.asked(), 3, "sources stand in the manifest");
    w.publish(3, &[1]);
    wait("the third", || w.films() == ["film-1"]);
    assert_eq!(w.asked(), 3);
    w.publish(4, &[1, 0]);
    wait("the fourth", || w.films() == ["film-1", "film-0"]);
    handle.stop();
    w.server = None;
    w.rig.told = Arc::default();
    let handle = w.rig.start();
    assert_eq!(w.films(), ["film-1", "film-0"]);
    assert_eq!(handle.fill().generation.0, 4);
}

#[test]
fn whichever_file_a_power_cut_leaves_old_the_manifest_has_its_documents() {
    let mut w = World::new();
    w.publish(1, &[0]);
    let mut handle = w.rig.start();
    wait("the first", || w.films() == ["film-0"]);
    let first = std::fs::read(w.state("manifest.signed")).unwrap();
    w.publish(2, &[1]);
    wait("the second", || w.films() == ["film-1"]);
    handle.stop();
    w.server = None;
    w.rig.told = Arc::default();
    std::fs::write(w.state("manifest.signed"), first).unwrap();
    let mut handle = w.rig.start();
    assert_eq!(w.films(), ["film-0"], "documents are kept first");
    handle.stop();
}

#[test]
fn a_control_that_lost_its_documents_is_asked_for_a_newer_manifest() {
    let w = &mut World::new();
    w.publish(1, &[0]);
    let _handle = w.rig.start();
    let w = &*w;
    wait("the first", || w.films() == ["film-0"]);
    w.control.lost_documents.store(true, Ordering::SeqCst);
    w.publish(2, &[0, 1, 2]);
    wait("the report of it", || w.has_said("control has none of 2 documents"));
    assert_eq!(w.films(), ["film-0"], "what is in force stays so");
    w.publish(3, &[0, 2]);
    w.control.lost_documents.store(false, Ordering::SeqCst);
    wait("the third", || w.films() == ["film-0", "film-2"]);
}

#[test]
fn a_document_that_was_changed_on_the_drive_is_not_believed() {
    let mut w = World::new();
    w.publish(1, &[0, 1]);
    let mut handle = w.rig.start();
    wait("the first", || w.films() == ["film-0", "film-1"]);
    handle.stop();
    let text = std::fs::read_to_string(w.state("documents.jsonl")).unwrap();
    std::fs::write(w.state("documents.jsonl"), text.replace("b.mp4", "d.mp4")).unwrap();
    w.rig.told = Arc::default();
    let _handle = w.rig.start();
    wait("the report of it", || w.has_said("of film-1 is not there"));
    wait("the same from control", || w.films() == ["film-0", "film-1"]);
}

#[test]
fn a_control_of_before_gives_whole_manifests_and_the_next_one_short_ones() {
    let mut w = World::new();
    w.control.is_old.store(true, Ordering::SeqCst);
    w.publish(1, &[0]);
    let mut handle = w.rig.start();
    wait("a whole one", || w.films() == ["film-0"]);
    assert_eq!(w.asked(), 0);
    w.control.is_old.store(false, Ordering::SeqCst);
    w.publish(2, &[0, 1]);
    wait("a short one", || w.films() == ["film-0", "film-1"]);
    assert_eq!(w.asked(), 2, "of a whole one nobody knows the documents");
    w.control.is_old.store(true, Ordering::SeqCst);
    w.publish(3, &[1]);
    wait("a whole one again", || w.films() == ["film-1"]);
    handle.stop();
    w.server = None;
    w.rig.told = Arc::default();
    let _handle = w.rig.start();
    assert_eq!(w.films(), ["film-1"]);
}

#[test]
fn a_writer_of_before_may_lead_while_documents_are_fetched() {
    let mut w = World::new();
    w.control.documents_refused.store(404, Ordering::SeqCst);
    w.publish(1, &[0, 1]);
    let _handle = w.rig.start();
    wait("the report of it", || w.has_said("control answers 404"));
    w.control.is_old.store(true, Ordering::SeqCst);
    wait("the same generation, whole", || w.films() == ["film-0", "film-1"]);
}

#[test]
fn documents_that_could_not_be_kept_are_kept_with_the_next_manifest() {
    let mut w = World::new();
    w.publish(1, &[0]);
    let mut handle = w.rig.start();
    wait("the first", || w.films() == ["film-0"]);
    std::fs::create_dir(w.state("documents.jsonl.new")).unwrap();
    w.publish(2, &[0, 1]);
    wait("the second", || w.films() == ["film-0", "film-1"]);
    wait("the report of it", || w.has_said("A restart forgets this manifest"));
    std::fs::remove_dir(w.state("documents.jsonl.new")).unwrap();
    w.publish(3, &[1, 0]);
    wait("the third", || handle.fill().generation.0 == 3);
    assert_eq!(w.asked(), 2);
    handle.stop();
    w.server = None;
    w.rig.told = Arc::default();
    let _handle = w.rig.start();
    assert_eq!(w.films(), ["film-1", "film-0"]);
}

#[test]
fn what_was_fetched_stays_for_the_next_try_and_for_the_next_manifest() {
    let mut w = World::new();
    let give = |w: &World, count| *w.control.documents_left.lock().unwrap() = Some(count);
    give(&w, 1);
    w.publish(1, &[0, 1, 2]);
    let handle = w.rig.start();
    wait("the report of it", || w.has_said("control answers 503"));
    let reports = || w.control.reports.lock().unwrap().len();
    let began = reports();
    wait("reports in time", || began + 5 < reports());
    assert_eq!(handle.fill().generation.0, 0);
    w.publish(2, &[2, 1, 0]);
    give(&w, 2);
    wait("the second", || w.films() == ["film-2", "film-1", "film-0"]);
    assert_eq!(*w.control.documents_left.lock().unwrap(), Some(0), "film-0 was there");
}
