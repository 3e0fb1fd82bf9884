//! An appliance that only talks: it reports, follows its manifest at once, and serves nothing.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::v1::manifest::Manifest;
use wire::v1::report::{Drive, Inventory, Load, Report, ReportReply};

use crate::control::Running;
use crate::link::Link;

/// What it says and knows.
pub(crate) struct Appliance {
    pub(crate) name: String,
    pub(crate) report: Report,
    pub(crate) generation: u64,
    held: Vec<String>,
    /// State of its inventory.
    state: u64,
    pub(crate) link: Option<Link>,
}

/// One that reports by itself until it is stopped.
pub(crate) struct Reporting {
    pub(crate) link: Link,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Instant>>,
    port: Option<TcpListener>,
}

impl Appliance {
    /// One that has just started and holds nothing.
    pub(crate) fn new(name: &str, base_url: &str) -> Self {
        let drive = Drive {
            id: "ab".repeat(16),
            path: "/d/0".to_owned(),
            capacity_bytes: 1 << 40,
            free_bytes: 1 << 40,
            ..Drive::default()
        };
        let load = Load {
            serving: true,
            connections_max: 1000,
            egress_bits_per_second: 5_000_000,
            cpu_percent: 12.5,
            ..Load::default()
        };
        let report = Report {
            start_id: 77,
            base_url: base_url.to_owned(),
            drives: vec![drive],
            load,
            ..Report::default()
        };
        Self {
            name: name.to_owned(),
            report,
            generation: 0,
            held: Vec::new(),
            state: 0,
            link: None,
        }
    }

    /// Its connection; with its first request it enrols.
    pub(crate) fn link(&mut self, control: &Running) -> Link {
        let name = &self.name;
        self.link.get_or_insert_with(|| Link::enrolled(control, name)).clone()
    }

    /// Reports once.
    pub(crate) fn report(&mut self, control: &Running) -> ReportReply {
        self.report.sequence += 1;
        let path = format!("/v1/appliances/{}/report", self.name);
        let answer = self.link(control).post(&path, &self.report);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let reply: ReportReply = serde_json::from_value(answer.json()).unwrap();
        self.report.inventory =
            Inventory { from: reply.inventory, to: self.state, ..Inventory::default() };
        reply
    }

    /// Fetches the manifest, if there is a newer one.
    pub(crate) fn fetch(&mut self, control: &Running) -> Option<Manifest> {
        let known = self.generation;
        let path = format!("/v1/appliances/{}/manifest?known={known}", self.name);
        let link = self.link(control);
        let answer = link.get(&path);
        if answer.status == 204 {
            return None;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.kind, "application/vnd.nearcast.signed");
        let manifest = link.open(&answer.bytes).unwrap();
        assert_eq!(manifest.appliance, self.name);
        self.generation = manifest.generation;
        self.report.generation = manifest.generation;
        Some(manifest)
    }

    /// Holds all of these from now on, and says so.
    pub(crate) fn hold(&mut self, control: &Running, manifest: &Manifest) {
        let files = manifest.versions.iter().flat_map(|version| version.files.values());
        self.held = files.map(|file| file.object.clone()).collect();
        self.state += 1;
        let to = self.state;
        self.report.inventory = Inventory { to, held: self.held.clone(), ..Inventory::default() };
        self.report(control);
    }

    /// Reports, fetches and holds: what an appliance does in its first seconds.
    pub(crate) fn settle(&mut self, control: &Running) {
        self.report(control);
        if let Some(manifest) = self.fetch(control) {
            self.hold(control, &manifest);
        }
    }

    /// Goes on by itself every `interval`, with something that accepts connections at its address.
    pub(crate) fn go_on(self, control: &Running, interval: Duration) -> Reporting {
        self.go_on_with(control, &[], interval)
    }

    /// The same, and reports to these fronts too.
    pub(crate) fn go_on_with(
        mut self,
        control: &Running,
        fronts: &[(&str, &Running)],
        interval: Duration,
    ) -> Reporting {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        self.report.base_url = format!("https://{}", port.local_addr().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let link = self.link(control);
        let to_front = |(name, front): &(&str, &Running)| {
            (Link::to_front(front, name, link.credentials.clone()), Inventory::default())
        };
        let mut links = vec![(link.clone(), self.report.inventory.clone())];
        links.extend(fronts.iter().map(to_front));
        let path = format!("/v1/appliances/{}/report", self.name);
        let thread = std::thread::spawn(move || {
            let mut last = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                self.report.sequence += 1;
                for (link, inventory) in &mut links {
                    self.report.inventory = inventory.clone();
                    // Control may be away for a moment, as it is in a restart.
                    let Ok(mut answer) = link.try_post(&path, &self.report) else { continue };
                    // A front that has just been enrolled may not know of this appliance yet.
                    let Ok(reply) = answer.body_mut().read_json() else { continue };
                    last = Instant::now();
                    self.follow(&reply);
                    *inventory = self.report.inventory.clone();
                }
                std::thread::sleep(interval);
            }
            last
        });
        Reporting { link, stop, thread: Some(thread), port: Some(port) }
    }

    /// Nothing changes, so the next delta is empty; or the full list, if control has forgotten.
    fn follow(&mut self, reply: &ReportReply) {
        let to = self.state;
        let (from, held) =
            if reply.inventory == to { (to, Vec::new()) } else { (0, self.held.clone()) };
        self.report.inventory = Inventory { from, to, held, ..Inventory::default() };
    }
}

impl Reporting {
    /// It hangs: its reports stop, its address still accepts. When the last report was answered.
    pub(crate) fn hang(&mut self) -> Instant {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("it hangs once").join().unwrap()
    }

    /// It dies: its reports stop and its address refuses.
    pub(crate) fn die(&mut self) -> Instant {
        drop(self.port.take());
        self.hang()
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
