//! The loop of `ideal` as a process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SIGTERM: i32 = 15;
/// It is told to end so often: a signal that comes while it waits would end it in any case.
const TRIES: u32 = 5;

fn ended(child: &mut Child) -> std::io::Result<Option<i32>> {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(status.signal());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[test]
fn a_signal_ends_it_at_once_while_it_works() {
    let room = tempfile::tempdir().unwrap();
    let films = room.path().join("films");
    std::fs::create_dir(&films).unwrap();
    std::fs::write(films.join("film-0000.mp4"), vec![7; 100_000]).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| room.path().join(name));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    for _ in 0..TRIES {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Command::new(env!("CARGO_BIN_EXE_nearcast-lab"))
            .arg("serve-ideal")
            .arg(&films)
            .args(["--listen", &at.to_string()])
            .arg("--certificate")
            .arg(&chain)
            .arg("--key")
            .arg(&key)
            .spawn()
            .unwrap();
        while TcpStream::connect(at).is_err() {
            assert_eq!(server.try_wait().unwrap(), None, "it does not begin");
            thread::sleep(Duration::from_millis(10));
        }
        let over = AtomicBool::new(false);
        let signal = thread::scope(|scope| {
            // It always has something to do, so that a signal does not find it waiting.
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        drop(TcpStream::connect(at));
                    }
                });
            }
            thread::sleep(Duration::from_millis(50));
            let pid = rustix::process::Pid::from_child(&server);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            let signal = ended(&mut server).unwrap();
            over.store(true, Ordering::Relaxed);
            signal
        });
        assert_eq!(signal, Some(SIGTERM));
    }
}
