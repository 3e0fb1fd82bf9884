use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const SESSIONS: &str = include_str!("../../../../pure/routes/tests/show-protocols-all.txt");
const ROUTES: &str = include_str!("../../../../pure/routes/tests/show-route-all.txt");

/// A router daemon that answers from two texts, and counts how often it was asked for its table.
struct Daemon {
    texts: Mutex<(String, String)>,
    tables: AtomicUsize,
}

impl Daemon {
    fn start(socket: &Path) -> Arc<Self> {
        let texts = Mutex::new((after_greeting(SESSIONS), after_greeting(ROUTES)));
        let daemon = Arc::new(Self { texts, tables: AtomicUsize::new(0) });
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
            let texts = self.texts.lock().unwrap().clone();
            let answer = match &*line {
                "restrict" => {
                    is_restricted = true;
                    "0016 Access restricted\n".to_owned()
                }
                "show protocols all" if is_restricted => texts.0,
                "show route all" if is_restricted => {
                    self.tables.fetch_add(1, Ordering::Relaxed);
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
    let whole = ask(None, &first.digest, 0).unwrap();
    assert!(whole.is_last && whole.from.is_none() && whole.withdrawn.is_empty());
    let prefixes: Vec<_> = whole.announced.iter().flat_map(|group| &group.prefixes).collect();
    assert_eq!(prefixes.len(), 2);
    assert!(ask(None, &first.digest, 1).is_err());

    let reads = daemon.tables.load(Ordering::Relaxed);
    std::thread::sleep(EVERY * 3);
    assert_eq!(daemon.tables.load(Ordering::Relaxed), reads, "nothing has changed");
    {
        let mut texts = daemon.texts.lock().unwrap();
        texts.0 = texts.0.replacen("Import updates:              2", "Import updates:    3", 1);
        texts.1 = texts.1.replace("BGP.med: 10", "BGP.med: 30");
    }
    let second = until(&shared, |heard| heard.digest != first.digest);
    let change = ask(Some(&first.digest), &second.digest, 0).unwrap();
    assert_eq!(change.from.as_deref(), Some(&*first.digest));
    let [group] = &change.announced[..] else { panic!("{change:?}") };
    assert_eq!((group.med, &*group.prefixes[0]), (Some(30), "198.51.100.0/24"));
    assert!(ask(None, &first.digest, 0).unwrap_err().contains("has changed"));
    let unknown = "7-00000000000000000000000000000001";
    assert_eq!(ask(Some(unknown), &second.digest, 0).unwrap().from, None, "then all of it");
}

#[test]
fn without_bird_nothing_is_known_and_it_is_said_why() {
    let folder = tempfile::tempdir().unwrap();
    let bird = folder.path().join("bird.ctl");
    let shared = reading(&bird);
    let began = Instant::now();
    let error = loop {
        let error = shared.heard().unwrap_err();
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
    let shared = Shared { settings, state: Mutex::new(state) };
    let to = shared.heard().unwrap().digest;
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
    let allow = ["198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"];
    let settings = Routes {
        bird: bird.to_owned(),
        private: vec!["isp1".to_owned()],
        allow: allow.map(|prefix| prefix.parse().unwrap()).into(),
        ..Routes::default()
    };
    let shared = Arc::new(Shared { settings, state: Mutex::default() });
    let reading = Arc::clone(&shared);
    std::thread::spawn(move || reading.read_on());
    shared
}

fn until(shared: &Shared, is_it: impl Fn(&Heard) -> bool) -> Heard {
    let began = Instant::now();
    loop {
        let heard = shared.heard();
        match heard {
            Ok(heard) if is_it(&heard) => return heard,
            _ => assert!(began.elapsed() < Duration::from_secs(20), "{heard:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn after_greeting(text: &str) -> String {
    text.split_once('\n').unwrap().1.to_owned()
}
