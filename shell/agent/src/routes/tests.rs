use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

const SESSIONS: &str = include_str!("../../../../pure/routes/tests/show-protocols-all.txt");
const ROUTES: &str = include_str!("../../../../pure/routes/tests/show-route-all.txt");

/// A router daemon that answers from two texts, and counts how often it was asked for its table.
struct Daemon {
    texts: Mutex<(String, String)>,
    tables: AtomicUsize,
    /// So long before each line of the table, of which the end never comes.
    stalls: Mutex<Option<Duration>>,
    /// Nothing is answered any more.
    is_silent: AtomicBool,
}

impl Daemon {
    fn start(socket: &Path) -> Arc<Self> {
        let texts = Mutex::new((after_greeting(SESSIONS), after_greeting(ROUTES)));
        let (tables, stalls, is_silent) = Default::default();
        let daemon = Arc::new(Self { texts, tables, stalls, is_silent });
        let (listener, serving) = (UnixListener::bind(socket).unwrap(), Arc::clone(&daemon));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serving.serve(stream);
            }
        });
        daemon
    }

    fn serve(&self, mut stream: UnixStream) {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut is_restricted = false;
        let _ = stream.write_all(b"0001 BIRD 2.0.12 ready.\n");
        for line in lines.map_while(Result::ok) {
            if self.is_silent.load(Ordering::Relaxed) {
                return;
            }
            let texts = self.texts.lock().unwrap().clone();
            let answer = match &*line {
                "restrict" => {
                    is_restricted = true;
                    "0016 Access restricted\n".to_owned()
                }
                "show protocols all" if is_restricted => texts.0,
                "show route all" if is_restricted => {
                    self.tables.fetch_add(1, Ordering::Relaxed);
                    let stalls = *self.stalls.lock().unwrap();
                    if let Some(each) = stalls {
                        return stall(&mut stream, &texts.1, each);
                    }
                    texts.1
                }
                _ => "8007 Access denied\n".to_owned(),
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

/// All lines but the last, slowly; then the connection is over.
fn stall(stream: &mut UnixStream, table: &str, each: Duration) {
    let lines: Vec<&str> = table.split_inclusive('\n').collect();
    for line in &lines[..lines.len() - 1] {
        std::thread::sleep(each);
        if stream.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_change_of_any_session_is_read_and_given_as_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let bird = folder.path().join("bird.ctl");
    let daemon = Daemon::start(&bird);
    let shared = reading(&bird);
    let first = until(&shared, |heard| heard.prefixes == 2);
    // The documentation ranges are believed here; the path with a set is not, nor what is static.
    assert_eq!(first.left_out[0].cause, "path_set");
    assert_eq!(first.left_out[0].examples[0].prefix, "203.0.113.0/24");
    let [isp1, isp2] = &first.sessions[..] else { panic!("{first:?}") };
    assert_eq!((isp1.peering, isp1.routes, isp1.believed), (Peering::Private, 3, 2));
    assert_eq!((&*isp2.state, isp2.peering), ("Active", Peering::Public));

    let ask = |known: Option<&str>, to: &str, number| {
        shared.part(known.map(|known| known.parse().unwrap()), to, number)
    };
    let first_digest = first.digest.unwrap();
    let whole = ask(None, &first_digest, 0).unwrap();
    assert!(whole.is_last && whole.from.is_none() && whole.withdrawn.is_empty());
    let prefixes: Vec<_> = whole.announced.iter().flat_map(|group| &group.prefixes).collect();
    assert_eq!(prefixes.len(), 2);
    assert!(ask(None, &first_digest, 1).is_err());

    let reads = daemon.tables.load(Ordering::Relaxed);
    std::thread::sleep(EVERY * 3);
    assert_eq!(daemon.tables.load(Ordering::Relaxed), reads, "nothing has changed");
    {
        let mut texts = daemon.texts.lock().unwrap();
        texts.0 = texts.0.replacen("Import updates:              2", "Import updates:    3", 1);
        texts.1 = texts.1.replace("BGP.med: 10", "BGP.med: 30");
    }
    let second = until(&shared, |heard| heard.digest.as_ref() != Some(&first_digest));
    let second_digest = second.digest.unwrap();
    let change = ask(Some(&first_digest), &second_digest, 0).unwrap();
    assert_eq!(change.from.as_ref(), Some(&first_digest));
    let [group] = &change.announced[..] else { panic!("{change:?}") };
    assert_eq!((group.med, &*group.prefixes[0]), (Some(30), "198.51.100.0/24"));
    assert!(ask(None, &first_digest, 0).unwrap_err().contains("has changed"));
    let unknown = "7-00000000000000000000000000000001";
    assert_eq!(ask(Some(unknown), &second_digest, 0).unwrap().from, None, "then all of it");

    // One who knows another table, or none, takes nobody's parts away.
    let cuts = || {
        let state = shared.state();
        let of = |cut: &Cut| (cut.from, Arc::as_ptr(&cut.parts));
        state.cuts.iter().map(of).collect::<Vec<_>>()
    };
    let before = cuts();
    assert_eq!(before.len(), 2);
    for known in [Some(&*first_digest), None, Some(unknown), Some(&first_digest)] {
        assert!(ask(known, &second_digest, 0).unwrap().is_last);
    }
    assert_eq!(cuts(), before, "each was cut once");
}

#[test]
fn a_reading_that_fails_late_takes_nothing_away_and_is_not_tried_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let bird = folder.path().join("bird.ctl");
    let daemon = Daemon::start(&bird);
    let silent = Duration::from_millis(700);
    let shared = reading_so(&bird, silent);
    let first = until(&shared, |heard| heard.prefixes == 2);
    assert!(first.behind_ms < 2000, "{first:?}");
    {
        *daemon.stalls.lock().unwrap() = Some(Duration::from_millis(100));
        let mut texts = daemon.texts.lock().unwrap();
        texts.0 = texts.0.replacen("Import updates:              2", "Import updates:    3", 1);
    }
    let failed = until(&shared, |heard| heard.error.is_some());
    assert_eq!((&failed.digest, failed.prefixes), (&first.digest, 2), "{failed:?}");
    assert!(failed.error.as_ref().unwrap().contains("it ended the connection"), "{failed:?}");
    assert_eq!(failed.age_s, Some(0));
    // It took some seconds, so that it rests for longer than this.
    let tables = daemon.tables.load(Ordering::Relaxed);
    std::thread::sleep(silent * 3);
    assert_eq!(daemon.tables.load(Ordering::Relaxed), tables);
    assert_eq!(shared.heard().prefixes, 2, "it answers about its sessions");
    daemon.is_silent.store(true, Ordering::Relaxed);
    let silent = until(&shared, |heard| heard.prefixes == 0);
    assert_eq!(silent.digest.as_deref(), Some(wire::v1::routes::EMPTY));
    assert!(silent.error.is_some() && silent.sessions.is_empty(), "{silent:?}");
}

#[test]
fn a_daemon_that_never_answers_announces_nothing_in_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let shared = reading_so(&folder.path().join("bird.ctl"), Duration::from_millis(700));
    let first = until(&shared, |heard| heard.error.is_some());
    assert_eq!((first.digest, first.age_s), (None, None), "that is not known yet");
    let then = until(&shared, |heard| heard.digest.is_some());
    assert_eq!((then.digest.as_deref(), then.age_s), (Some(wire::v1::routes::EMPTY), None));
    assert!(then.error.unwrap().contains("does BIRD run?"));
}

#[test]
fn the_time_for_a_reply_grows_with_the_routes_that_come() {
    assert_eq!(reply_max(0), REPLY_MAX);
    // Ten full tables, of which each route takes some 10 us.
    assert!(Duration::from_secs(1200) < reply_max(12_000_000));
    assert!(REPLY_MAX < reply_max(u64::MAX));
}

#[test]
fn without_bird_nothing_is_known_and_it_is_said_why() {
    let folder = tempfile::tempdir().unwrap();
    let bird = folder.path().join("bird.ctl");
    let shared = reading(&bird);
    let began = Instant::now();
    let error = loop {
        let heard = shared.heard();
        assert_eq!(heard.digest, None);
        let error = heard.error.unwrap();
        if error.contains("does BIRD run?") {
            break error;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(error.contains("bird.ctl"), "{error}");
    Daemon::start(&bird);
    assert_eq!(until(&shared, |heard| heard.prefixes == 2).error, None);
}

#[test]
fn a_table_that_does_not_fit_into_one_part_is_cut() {
    let filter = routes::filter::Filter::default();
    let mut builder = Builder::new(&filter);
    for n in 0..40_000_u32 {
        let [_, a, b, _] = (n << 8).to_be_bytes();
        let told = routes::Told {
            prefix: format!("11.{a}.{b}.0/24").parse().unwrap(),
            session: "s".into(),
            as_path: vec![64500, n % 7],
            has_set: false,
            med: None,
            communities: vec![],
        };
        builder.hear(told, routes::Peering::Public);
    }
    let state = State { table: Some(Arc::new(builder.done())), ..State::default() };
    let settings = Routes::default();
    let shared = Shared { settings, silent: SILENT, state: Mutex::new(state) };
    let to = shared.heard().digest.unwrap();
    let mut count = 0;
    for number in 0.. {
        let part = shared.part(None, &to, number).unwrap();
        let text = serde_json::to_string(&part).unwrap();
        assert!(text.len() <= PART_LEN_MAX, "{}", text.len());
        count += part.announced.iter().map(|group| group.prefixes.len()).sum::<usize>();
        if part.is_last {
            assert!(0 < number);
            break;
        }
    }
    assert_eq!(count, 40_000);
}

fn reading(bird: &Path) -> Arc<Shared> {
    reading_so(bird, SILENT)
}

/// The same, and BIRD counts as silent after so long.
fn reading_so(bird: &Path, silent: Duration) -> Arc<Shared> {
    let allow = ["198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"];
    let settings = Routes {
        bird: bird.to_owned(),
        private: vec!["isp1".to_owned()],
        allow: allow.map(|prefix| prefix.parse().unwrap()).into(),
        ..Routes::default()
    };
    let shared = Arc::new(Shared { settings, silent, state: Mutex::default() });
    let reading = Arc::clone(&shared);
    std::thread::spawn(move || reading.read_on());
    shared
}

fn until(shared: &Shared, is_it: impl Fn(&Heard) -> bool) -> Heard {
    let began = Instant::now();
    loop {
        let heard = shared.heard();
        if is_it(&heard) {
            return heard;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{heard:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn after_greeting(text: &str) -> String {
    text.split_once('\n').unwrap().1.to_owned()
}
