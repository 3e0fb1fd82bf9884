//! The shell that tests play.

use super::*;

pub(crate) const WALL: u64 = 1_790_000_000;

/// The shell that the test plays.
pub(crate) struct Bench {
    pub(crate) worker: Worker,
    pub(crate) now: Now,
    /// Object files by name, with something behind the object as on a real drive.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) slots: BTreeMap<FileSlot, String>,
    /// Drives that answer nothing.
    pub(crate) hung: BTreeSet<u8>,
    pub(crate) buffers: Vec<Vec<u8>>,
    /// What the kernel has not answered yet.
    pub(crate) reads: VecDeque<(BufferId, FileSlot, Bytes, Bytes)>,
    pub(crate) opens: VecDeque<(FileSlot, String)>,
    pub(crate) sends: VecDeque<ConnectionId>,
    pub(crate) received: BTreeMap<ConnectionId, Vec<u8>>,
    pub(crate) listening: Vec<ConnectionId>,
    pub(crate) closed: BTreeMap<ConnectionId, Ending>,
    pub(crate) reports: Vec<Fault>,
    /// What the kernel was told to keep connections to.
    pub(crate) limits: BTreeMap<ConnectionId, Option<BitsPerSecond>>,
    pub(crate) incidents: Vec<Incident>,
    /// Object, block, and whether the buffer had it.
    pub(crate) verified: Vec<(u8, u64, bool)>,
}

pub(crate) fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

pub(crate) fn token_until(expires: u64) -> String {
    token_for("", expires)
}

pub(crate) fn token_for(prefix: &str, expires: u64) -> String {
    let scope = Scope::below("film-1", prefix).unwrap();
    let session = Session::of_random([9; 12]);
    let grant = Grant { session, expires: UnixSeconds(expires), scope };
    let input = SigningInput::new("k1", grant);
    let signature = key().sign(input.as_bytes()).as_ref().try_into().unwrap();
    assemble("k1", grant, &signature)
}

pub(crate) fn token() -> String {
    token_until(WALL + 1000)
}

pub(crate) fn content(n: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| ((i * 131 + n * 17 + i / 4096) % 251).to_le_bytes()[0]).collect()
}

pub(crate) fn file(n: u8, len: u64) -> File {
    File { object: ObjectId([n; 32]), len: Bytes(len), content_type: "video/mp4".into() }
}

/// The catalogue of all tests: path, object number, length, on which drive.
pub(crate) const FILES: [(&str, u8, u64, u8); 5] = [
    ("v.mp4", 1, 1_000_000, 0),
    ("w.mp4", 2, 262_144, 1),
    ("list.m3u8", 3, 3000, 0),
    ("a b/é.mp4", 4, 5000, 1),
    ("empty", 5, 0, 0),
];

pub(crate) fn config() -> Config {
    Config {
        connections_max: 8,
        handshakes_max: 4,
        transfers_max: 4,
        buffers: 4,
        hot_blocks: 0,
        file_slots: 5,
        drives: 2,
        drive_depth: 2,
        drive_opens: 4,
        read_targets: [Nanos::millis(5); model::limits::DRIVES_MAX],
        hang_after: Nanos::millis(500),
        reset_after: Nanos::seconds(2),
        head_len_max: 2048,
        request_timeout: Nanos::seconds(10),
        idle_timeout: Nanos::seconds(60),
        token_leeway: Nanos::seconds(5),
        progress_timeout: Nanos::seconds(30),
        verify_every: 2,
        log_requests: true,
        views_max: 64,
        pacing: PaceConfig::OFF,
        incidents: Some(IncidentBounds {
            drive_wait: Nanos::seconds(2),
            client_rate: BitsPerSecond(1_000_000),
        }),
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        let now = Now { instant: Instant(0), wall: UnixSeconds(WALL) };
        let mut bench = Self {
            worker: Worker::new(config, now),
            now,
            files: BTreeMap::new(),
            slots: BTreeMap::new(),
            hung: BTreeSet::new(),
            buffers: vec![vec![0; Config::BUFFER_LEN.as_usize()]; config.buffer_count().into()],
            reads: VecDeque::new(),
            opens: VecDeque::new(),
            sends: VecDeque::new(),
            received: BTreeMap::new(),
            listening: Vec::new(),
            closed: BTreeMap::new(),
            reports: Vec::new(),
            limits: BTreeMap::new(),
            incidents: Vec::new(),
            verified: Vec::new(),
        };
        let mut files: BTreeMap<String, File> =
            FILES.iter().map(|(path, n, len, _)| ((*path).to_owned(), file(*n, *len))).collect();
        files.insert("not-yet.mp4".to_owned(), file(99, 10));
        let version = AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified: UnixSeconds(784_111_777),
            pace: None,
            files,
        };
        let public_key = key().public_key().as_ref().try_into().unwrap();
        bench.event(Event::Update(Update::Manifest(Arc::new(Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
            trust: model::manifest::Trust::default(),
            numbers: BTreeMap::new(),
            siblings: BTreeMap::from([("film-1".parse().unwrap(), vec!["a2".parse().unwrap()])]),
            site: Vec::new(),
            versions: vec![Arc::new(version)],
        }))));
        for (_, n, len, drive) in FILES {
            let name = format!("objects/{n}");
            let bytes = content(u64::from(n), len);
            let small = (len == 3000).then(|| bytes.clone().into());
            let padded = [bytes, vec![0xee; 4096]].concat();
            bench.files.insert(name.clone(), padded);
            let (drive, file) = (DriveIndex(drive), FileName(name.into()));
            let extent = Extent { drive, file, offset: Bytes(0), len: Bytes(len) };
            let object = ObjectId([n; 32]);
            bench.event(Event::Update(Update::Published { object, extent, small }));
        }
        bench
    }

    /// One event, and all that follows from it at once.
    pub(crate) fn event(&mut self, event: Event<'_>) {
        self.worker.handle(self.now, event);
        while let Some(action) = self.worker.poll() {
            self.carry_out(action);
        }
    }

    pub(crate) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Receive { connection } => self.listening.push(connection),
            Action::Send { connection, head, body, .. } => {
                assert!(!self.sends.contains(&connection), "one send at a time");
                let out = self.received.entry(connection).or_default();
                if head {
                    out.extend_from_slice(self.worker.head(connection));
                }
                match body {
                    Body::Empty => {}
                    Body::Memory { bytes, start, end } => out.extend_from_slice(&bytes[start..end]),
                    Body::Buffer { buffer, start, end } => {
                        out.extend_from_slice(&self.buffers[buffer.as_usize()][start..end]);
                    }
                }
                self.sends.push_back(connection);
            }
            Action::Open { slot, file, .. } => {
                self.opens.push_back((slot, file.0.as_ref().to_owned()));
            }
            Action::CloseFile { slot } => {
                self.slots.remove(&slot).expect("only an open file is closed");
            }
            Action::Read { buffer, slot, offset, len } => {
                assert!(self.reads.iter().all(|read| read.0 != buffer), "a buffer has one reader");
                assert!(offset.0 % 4096 == 0 && len.0 % 4096 == 0, "direct I/O is aligned");
                self.reads.push_back((buffer, slot, offset, len));
            }
            Action::Close { connection, ending } => {
                assert!(self.closed.insert(connection, ending).is_none(), "closed once");
            }
            Action::Limit { connection, rate } => {
                self.limits.insert(connection, rate);
            }
            Action::LookAtPath { connection } => panic!("{connection:?} is not paced"),
            Action::Report { fault, .. } => self.reports.push(fault),
            Action::Incident(incident) => self.incidents.push(*incident),
            Action::Verify { object, object_len, block, buffer, .. } => {
                let whole = content(u64::from(object.0[0]), object_len.0);
                let from = Bytes(block * 262_144).as_usize();
                let block_bytes = &whole[from..whole.len().min(from + 262_144)];
                if let Some(buffer) = buffer {
                    let found = &self.buffers[buffer.as_usize()][..block_bytes.len()];
                    assert_eq!(found, block_bytes, "the buffer begins with the block");
                }
                self.verified.push((object.0[0], block, buffer.is_some()));
            }
        }
    }

    pub(crate) fn connect(&mut self, slot: u32) -> ConnectionId {
        let connection = ConnectionId { slot, generation: 1 };
        self.event(Event::Accepted { connection });
        self.event(Event::Established { connection });
        connection
    }

    pub(crate) fn say(&mut self, connection: ConnectionId, text: &str) {
        let before = self.listening.len();
        self.listening.retain(|listening| *listening != connection);
        assert_eq!(self.listening.len() + 1, before, "the worker asked for content");
        self.event(Event::Received { connection, bytes: text.as_bytes() });
    }

    /// The kernel answers one thing, but for drives that hang; false if there is none.
    pub(crate) fn step(&mut self, choice: usize) -> bool {
        let answers = |name: &String| !self.hung.contains(&drive_of(name));
        let some = |count: usize| (0..count).collect::<Vec<usize>>();
        let (mut opens, mut reads) = (some(self.opens.len()), some(self.reads.len()));
        opens.retain(|at| answers(&self.opens[*at].1));
        reads.retain(|at| answers(&self.slots[&self.reads[*at].1]));
        let total = opens.len() + reads.len() + self.sends.len();
        if total == 0 {
            return false;
        }
        let mut at = choice % total;
        if at < opens.len() {
            let (slot, name) = self.opens.remove(opens[at]).unwrap();
            let found = self.files.contains_key(&name);
            if found {
                self.slots.insert(slot, name);
            }
            let result = if found { Ok(()) } else { Err(Fault { errno: 2 }) };
            self.event(Event::Opened { slot, result });
            return true;
        }
        at -= opens.len();
        if at < reads.len() {
            let (buffer, slot, offset, len) = self.reads.remove(reads[at]).unwrap();
            let bytes = &self.files[&self.slots[&slot]];
            let (from, to) = (offset.as_usize(), (offset + len).as_usize().min(bytes.len()));
            self.buffers[buffer.as_usize()][..to - from].copy_from_slice(&bytes[from..to]);
            let result = Ok(Bytes::of(to - from));
            self.event(Event::Read { buffer, result });
            return true;
        }
        let connection = self.sends.remove(at - reads.len()).unwrap();
        self.event(Event::Sent { connection });
        true
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..10_000 {
            if !self.step(0) {
                return;
            }
        }
        panic!("the worker did not come to rest");
    }

    /// One request on a fresh connection: the head, and the body.
    pub(crate) fn fetch(&mut self, request: &str) -> (String, Vec<u8>) {
        let slot = u32::try_from(self.received.len()).unwrap();
        let connection = self.connect(slot);
        self.say(connection, request);
        self.settle();
        let out = self.received.remove(&connection).unwrap();
        self.received.insert(ConnectionId { slot: 1000 + slot, generation: 0 }, Vec::new());
        self.event(Event::Ended { connection });
        split(&out)
    }

    pub(crate) fn get(&mut self, path: &str, fields: &str) -> (String, Vec<u8>) {
        self.fetch(&get(path, fields))
    }

    pub(crate) fn wait_ms(&mut self, millis: u64) {
        self.now.instant = self.now.instant + Nanos::millis(millis);
        self.event(Event::Tick);
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.instant = self.now.instant + Nanos::seconds(1);
            self.now.wall.0 += 1;
            self.event(Event::Tick);
        }
    }
}

/// The drive of an object's file; the first, if it is none of the catalogue's.
pub(crate) fn drive_of(name: &str) -> u8 {
    let of = |file: &&(&str, u8, u64, u8)| name == format!("objects/{}", file.1);
    FILES.iter().find(of).map_or(0, |file| file.3)
}

pub(crate) fn get(path: &str, fields: &str) -> String {
    format!("GET /t/{}/film-1/{path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n", token())
}

pub(crate) fn split(out: &[u8]) -> (String, Vec<u8>) {
    let end = out.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head") + 4;
    (String::from_utf8(out[..end].to_vec()).unwrap(), out[end..].to_vec())
}

pub(crate) fn status(head: &str) -> u16 {
    head[9..12].parse().unwrap()
}
