//! The appliance's part in its site: real siblings, and an agent of a few lines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use appliance::membership::takeover::Config;
use appliance::serving::clients::{Client, Clients, Word};
use identity::member::Member;
use model::manifest::SiteMember;
use wire::v1::agent::{Answer, Held, Line, Request, VERSION};
use wire::v1::clients::Clients as Told;

use crate::fleet::ours;
use crate::rig::{TestFile, wait};
use crate::siblings::{Sibling, ask};

/// An agent that has the addresses it is told to have, and notes what it is asked.
#[derive(Default)]
struct Agent {
    held: Mutex<Vec<IpAddr>>,
    wanted: Mutex<BTreeMap<IpAddr, u8>>,
    tickled: Mutex<Vec<Client>>,
    /// It sends no packets: `tickle` is false.
    is_quiet: AtomicBool,
    left_out: Mutex<Vec<(IpAddr, String)>>,
    /// It cannot do what it is asked, and so often it has said that.
    cannot: AtomicBool,
    refusals: AtomicUsize,
    /// One machine at a time has an address.
    elects: AtomicBool,
}

impl Agent {
    fn start(socket: &Path) -> Arc<Self> {
        let agent = Arc::new(Self::default());
        let (listener, answering) = (UnixListener::bind(socket).unwrap(), Arc::clone(&agent));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let asked: Line<Request> = serde_json::from_str(&line).unwrap();
                let line = Line { v: VERSION, said: answering.answer(asked.said) };
                let _ = writeln!(&stream, "{}", serde_json::to_string(&line).unwrap());
            }
        });
        agent
    }

    fn answer(&self, request: Request) -> Answer {
        match request {
            Request::Addresses { wanted } => {
                *self.wanted.lock().unwrap() = wanted.into_iter().collect();
                if self.cannot.load(Ordering::SeqCst) {
                    self.refusals.fetch_add(1, Ordering::SeqCst);
                    return Answer::Refused("one address is still on: it fails".to_owned());
                }
            }
            Request::Tickle { clients } => {
                self.tickled.lock().unwrap().extend(&clients);
                if self.is_quiet.load(Ordering::SeqCst) {
                    return Answer::Tickled(0);
                }
                return Answer::Tickled(u64::try_from(clients.len()).unwrap());
            }
            Request::Held
            | Request::Drives
            | Request::Trim { .. }
            | Request::Health
            | Request::Routes
            | Request::RoutesPart { .. } => {}
        }
        Answer::Held(Held {
            here: self.held.lock().unwrap().clone(),
            left_out: self.left_out.lock().unwrap().clone(),
            is_elected: self.elects.load(Ordering::SeqCst),
        })
    }

    fn wants(&self, address: IpAddr) -> u8 {
        self.wanted.lock().unwrap().get(&address).copied().unwrap_or(0)
    }
}

/// Workers of a few lines.
#[derive(Default)]
struct Workers {
    /// They have responses under way by every address.
    are_busy: AtomicBool,
    drained: Mutex<Vec<IpAddr>>,
}

impl Workers {
    fn hear(&self, word: Word) {
        match word {
            Word::Busy(busy) if self.are_busy.load(Ordering::SeqCst) => {
                busy.answer(&busy.addresses);
            }
            Word::Busy(busy) => busy.answer(&[]),
            Word::Drain(_, addresses) => *self.drained.lock().unwrap() = addresses.to_vec(),
        }
    }
}

/// A member of the site whose agent and workers are of a few lines.
struct Machine {
    agent: Arc<Agent>,
    workers: Arc<Workers>,
    clients: Arc<Clients>,
    sibling: Sibling,
}

impl Machine {
    /// With these addresses, by an agent at `socket`.
    fn start(name: &str, socket: &Path, held: &[IpAddr]) -> Self {
        let (agent, clients) = (Agent::start(socket), Arc::new(Clients::new()));
        *agent.held.lock().unwrap() = held.to_vec();
        let (workers, files) = (Arc::new(Workers::default()), [TestFile::new("v.mp4", 1000)]);
        let hearing = Arc::clone(&workers);
        let takeover = Config {
            agent: socket.to_owned(),
            base_url: "https://a.example".to_owned(),
            clients: Arc::clone(&clients),
            workers: 1,
            tell: Arc::new(move |word| hearing.hear(word)),
        };
        let sibling =
            Sibling::of_site(name, &files, &site(), |config| config.takeover = Some(takeover));
        Self { agent, workers, clients, sibling }
    }

    /// From now on its control says where a sibling lets others fetch.
    fn meet(&self, name: &str, other: &Self) {
        self.meet_at(name, other.sibling.address.clone());
    }

    fn meet_at(&self, name: &str, address: String) {
        self.sibling.control.peers.lock().unwrap().insert(name.to_owned(), address);
    }

    fn part(&self) -> takeover::Counters {
        self.sibling.handle.takeover().map(|part| part.counters).unwrap_or_default()
    }

    fn knows(&self, clients: usize) -> bool {
        self.sibling.handle.takeover().is_some_and(|part| part.clients == clients)
    }

    /// How many errors that control was told of have this in them.
    fn errors(&self, text: &str) -> usize {
        let errors = self.sibling.control.last_report().unwrap_or_default().errors;
        errors.iter().filter(|error| error.text.contains(text)).count()
    }
}

/// A way to `address` on which answers come slowly after their first 6 KiB: 16 KiB a second.
fn slow(address: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (at, to) = (listener.local_addr().unwrap().to_string(), address.to_owned());
    std::thread::spawn(move || {
        for mut near in listener.incoming().flatten() {
            let mut far = TcpStream::connect(&to).unwrap();
            let (mut questions, mut on) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut questions, &mut on);
                let _ = on.shutdown(std::net::Shutdown::Write);
            });
            std::thread::spawn(move || {
                let (mut piece, mut passed) = ([0; 1024], 0);
                while let Ok(len @ 1..) = far.read(&mut piece) {
                    if near.write_all(&piece[..len]).is_err() {
                        break;
                    }
                    passed += len;
                    if 6 * 1024 < passed {
                        std::thread::sleep(Duration::from_micros(60) * len.try_into().unwrap());
                    }
                }
                let _ = near.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    at
}

/// An address of the loopback, which needs no set-up.
fn address(n: u8) -> IpAddr {
    IpAddr::from([127, 0, 9, n])
}

fn site() -> Vec<SiteMember> {
    let member =
        |n: u8| SiteMember { id: format!("a{n}").parse().unwrap(), addresses: vec![address(n)] };
    vec![member(1), member(2)]
}

/// A connection that came by an address.
fn connection(at: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((at, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

#[test]
fn a_member_of_the_site_is_told_the_clients_and_nobody_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start("a2", &dir.path().join("agent.sock"), &[]);
    let (client, accepted) = connection(address(2));
    let noted = machine.clients.note(&accepted).unwrap();
    let get = |name: &str, query: &str| {
        let credentials = ours().credentials(&Member::appliance(name));
        let path = format!("/v1/clients{query}");
        ask(&credentials, &machine.sibling, &path, "bytes=0-").unwrap()
    };
    let told = |answer: (u16, Vec<u8>)| {
        assert_eq!(answer.0, 200);
        serde_json::from_slice::<Told>(&answer.1).unwrap()
    };
    let all = told(get("a1", "?start=0&known=0"));
    assert_eq!(all.open, [(accepted.local_addr().unwrap(), client.local_addr().unwrap())]);
    drop(noted);
    let next = told(get("a1", &format!("?start={}&known={}", all.start, all.to)));
    assert_eq!((next.from, next.gone), (all.to, all.open), "the difference alone");
    assert_eq!(get("b1", "").0, 404, "of another site");
    wait("its own address to be wanted", || machine.agent.wants(address(2)) == 200);
    assert!((30..200).contains(&machine.agent.wants(address(1))));
}

#[test]
fn clients_of_a_sibling_that_died_are_reset_and_its_address_goes_back_when_drained() {
    let dir = tempfile::tempdir().unwrap();
    let a1 = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    let a2 = Machine::start("a2", &dir.path().join("a2"), &[]);
    a2.meet("a1", &a1);
    wait("it to serve", || a1.agent.wants(address(1)) == 200);
    let (client, accepted) = connection(address(1));
    let noted = a1.clients.note(&accepted).unwrap();
    wait("the sibling to know of its client", || a2.knows(1));
    assert!(a2.agent.tickled.lock().unwrap().is_empty());
    drop(a1.sibling);
    assert_eq!(a1.agent.wants(address(1)), 1, "it gave its address away as it ended");
    a2.workers.are_busy.store(true, Ordering::SeqCst);
    a2.agent.held.lock().unwrap().push(address(1));
    let who = (accepted.local_addr().unwrap(), client.local_addr().unwrap());
    wait("its client to be tickled", || a2.agent.tickled.lock().unwrap().contains(&who));
    wait("that to be counted", || 0 < a2.part().tickled);
    drop(noted);

    let again = Machine::start("a1", &dir.path().join("a1-again"), &[]);
    again.meet("a2", &a2);
    a2.meet("a1", &again);
    wait("its address to be drained", || *a2.workers.drained.lock().unwrap() == [address(1)]);
    assert_eq!(again.agent.wants(address(1)), 20, "it waits");
    a2.workers.are_busy.store(false, Ordering::SeqCst);
    wait("its address to be wanted", || again.agent.wants(address(1)) == 200);
    a2.agent.held.lock().unwrap().clear();
    again.agent.held.lock().unwrap().push(address(1));
    wait("the end of that", || a2.workers.drained.lock().unwrap().is_empty());
}

#[test]
fn clients_whose_agent_sends_nothing_are_not_counted_and_that_is_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let a1 = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    let a2 = Machine::start("a2", &dir.path().join("a2"), &[]);
    a2.agent.is_quiet.store(true, Ordering::SeqCst);
    a2.meet("a1", &a1);
    let connections: Vec<_> = (0..12).map(|_| connection(address(1))).collect();
    let noted = |(_, accepted): &(TcpStream, TcpStream)| a1.clients.note(accepted).unwrap();
    let noted: Vec<_> = connections.iter().map(noted).collect();
    wait("the sibling to know its clients", || a2.knows(12));
    drop(a1.sibling);
    a2.agent.held.lock().unwrap().push(address(1));
    let asked = || a2.agent.tickled.lock().unwrap().len();
    wait("three rounds of tickles", || asked() == 3 * noted.len());
    wait("that it is said", || a2.errors("none of 12 clients of a sibling was tickled") == 1);
    assert_eq!(a2.part().tickled, 0);
}

#[test]
fn an_address_that_the_agent_leaves_out_is_said_and_the_others_are_here() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    wait("its own address to be wanted", || machine.agent.wants(address(1)) == 200);
    let why = (address(2), "it is in none of the ranges".to_owned());
    machine.agent.left_out.lock().unwrap().push(why);
    let wanted = format!("{} does not come here: it is in none", address(2));
    wait("that it is said", || machine.errors(&wanted) == 1);
    assert_eq!(machine.errors("do not move"), 0);
    assert_eq!(machine.agent.wants(address(1)), 200);
    assert!((30..200).contains(&machine.agent.wants(address(2))), "it is asked for on");
}

#[test]
fn an_agent_that_cannot_do_all_of_it_takes_no_address_off_who_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    wait("its own address to be wanted", || machine.agent.wants(address(1)) == 200);
    machine.agent.cannot.store(true, Ordering::SeqCst);
    // Longer than an agent may be silent.
    wait("ten refusals", || 10 <= machine.agent.refusals.load(Ordering::SeqCst));
    assert_eq!(machine.agent.wants(address(1)), 200, "it is here");
    machine.agent.held.lock().unwrap().push(address(2));
    wait("what comes meanwhile to be known", || machine.part().taken == 1);
    wait("that it is said", || machine.errors("do not move: refused: one address is still") == 1);
}

#[test]
fn clients_are_reset_when_an_address_comes_though_its_owner_has_noticed_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let a1 = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    let a2 = Machine::start("a2", &dir.path().join("a2"), &[]);
    a2.agent.elects.store(true, Ordering::SeqCst);
    a2.meet("a1", &a1);
    let (client, accepted) = connection(address(1));
    let _noted = a1.clients.note(&accepted).unwrap();
    wait("the sibling to know of its client", || a2.knows(1));
    // As when the owner's keepalived hangs.
    a2.agent.held.lock().unwrap().push(address(1));
    let who = (accepted.local_addr().unwrap(), client.local_addr().unwrap());
    wait("its client to be tickled", || a2.agent.tickled.lock().unwrap().contains(&who));
}

#[test]
fn a_list_that_comes_slowly_is_known_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let a1 = Machine::start("a1", &dir.path().join("a1"), &[address(1)]);
    let a2 = Machine::start("a2", &dir.path().join("a2"), &[]);
    let connections: Vec<_> = (0..300).map(|_| connection(address(1))).collect();
    let noted = |(_, accepted): &(TcpStream, TcpStream)| a1.clients.note(accepted).unwrap();
    let _noted: Vec<_> = connections.iter().map(noted).collect();
    a2.meet_at("a1", slow(&a1.sibling.address));
    wait("the sibling to know its clients", || a2.knows(300));
}
