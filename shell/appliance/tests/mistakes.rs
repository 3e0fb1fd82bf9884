//! What an operator reads who made a mistake: the real program, a table of bad configurations.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// A configuration that is good but for what stands in the folder.
fn good(room: &Path) -> String {
    let at = |name: &str| room.join(name).display().to_string();
    format!(
        "name = \"a1\"\nstate = \"{}\"\n[serve]\nlisten = [\"127.0.0.1:8443\"]\n\
         certificate = \"{}\"\nkey = \"{}\"\nworkers = 1\n[drives]\npaths = [\"{}\"]\n\
         [control]\nurl = \"https://127.0.0.1:8081\"\n",
        at("state"),
        at("certificate.pem"),
        at("key.pem"),
        at("drive")
    )
}

/// What `check` says of a configuration that it refuses.
fn refusal(room: &Path, config: &str) -> String {
    let path = room.join("appliance.toml");
    fs::write(&path, config).unwrap();
    let program = env!("CARGO_BIN_EXE_nearcast-appliance");
    let output = Command::new(program).arg("check").arg("--config").arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "it was not refused: {config}\n{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn each_mistake_in_a_configuration_is_named_with_what_would_be_right() {
    let room = tempfile::tempdir().unwrap();
    let good = good(room.path());
    // What is changed, into what, and what the refusal has to say.
    let table = [
        ("workers = 1", "wrokers = 1", &["wrokers", "line 7", "workers"][..]),
        ("workers = 1", "workers = \"one\"", &["line 7", "a whole number is wanted"]),
        ("workers = 1", "workers = 0", &["[serve] workers"]),
        (
            "workers = 1",
            "workers = 2\nhandshakes_max = 1",
            &["[serve] handshakes_max", "between 2 and"],
        ),
        ("workers = 1", "idle_timeout = \"5\"", &["needs a unit", "250 ms"]),
        ("workers = 1", "idle_timeout = \"5 parsecs\"", &["parsecs"]),
        ("workers = 1", "head_max = \"8 s\"", &["line 7", "MiB"]),
        ("workers = 1", "plain_listen = [\"0.0.0.0:80\"]", &["plain_listen", "loopback"]),
        (
            "workers = 1",
            "workers = 1\nsecond_certificate = \"rsa.pem\"",
            &["[serve] second_certificate", "second_key", "both"],
        ),
        ("127.0.0.1:8443", "127.0.0.1", &["socket address"]),
        ("127.0.0.1:8443", "control.example:8443", &["socket address"]),
        ("name = \"a1\"", "name = \"A 1\"", &["A 1", "a-z"]),
        ("name = \"a1\"\n", "", &["name"]),
        ("[control]", "[contorl]", &["contorl"]),
        ("https://127", "http://127", &["url = ", "https://HOST:PORT"]),
        ("[drives]\npaths = [", "[drives]\npaths = [] #", &["[drives] paths"]),
        ("[drives]", "[drives", &["line 8"]),
        (
            "[drives]",
            "[tls]\naead = \"openssl\"\n[drives]",
            &["line 9", "aead = \"openssl\"", "\"auto\"", "\"ring\""],
        ),
    ];
    let mut missing = Vec::new();
    for (from, to, wanted) in table {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from} is there");
        let said = refusal(room.path(), &changed);
        let not_said = wanted.iter().filter(|word| !said.contains(**word));
        missing.extend(not_said.map(|word| format!("{to}: no \"{word}\" in: {said}")));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn a_missing_or_foreign_certificate_is_named_with_its_file() {
    let room = tempfile::tempdir().unwrap();
    let config = good(room.path());
    let put = |name: &str, text: &str| fs::write(room.path().join(name), text).unwrap();
    let says_of = |config: &str, words: &[&str]| {
        let said = refusal(room.path(), config);
        words.iter().for_each(|word| assert!(said.contains(word), "no \"{word}\" in: {said}"));
    };
    let says = |words: &[&str]| says_of(&config, words);
    says(&["certificate.pem", "No such file", "PEM"]);
    put("certificate.pem", "not PEM at all");
    put("key.pem", "nor this");
    says(&["key.pem", "PEM"]);
    let pair = rcgen::generate_simple_self_signed(vec!["a1.example".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["a1.example".to_owned()]).unwrap();
    put("certificate.pem", &pair.cert.pem());
    put("key.pem", &other.signing_key.serialize_pem());
    says(&["certificate.pem", "key.pem", "cannot be used together"]);
    put("key.pem", &pair.signing_key.serialize_pem());
    let room = room.path().display();
    let second = format!("second_certificate = \"{room}/2.pem\"\nsecond_key = \"{room}/2.key\"");
    let two = config.replace("workers = 1", &format!("{second}\nworkers = 1"));
    put("2.pem", &other.cert.pem());
    put("2.key", &other.signing_key.serialize_pem());
    says_of(&two, &["2.pem has a key of ECDSA", "one has a key of RSA and one of ECDSA"]);
    says(&["identity.json", "has not enrolled", "one-time code"]);
}
