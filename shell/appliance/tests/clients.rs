//! The TLS clients that people have, against the real process: OpenSSL, curl and GnuTLS, with TLS
//! 1.2 and 1.3, and with a certificate of RSA and one of ECDSA side by side.
//!
//! One that is not installed fails its test: `./x check` installs all but OpenSSL 1.0.2, which is
//! tried where OLD_NODE is a Node.js 8, which has it (of 2019): `./x tlsfuzzer` fetches one.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod held;

use std::cell::Cell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::storage::format;
use held::free_ports;
use identity::authority::Authority;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// An appliance that holds the film, with both certificates.
struct Appliance {
    place: tempfile::TempDir,
    /// Takes TLS 1.3 alone.
    newer: u16,
    /// Takes TLS 1.2 too.
    older: u16,
    child: Child,
    /// What a client is told before the request.
    first: Cell<&'static str>,
}

impl Drop for Appliance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Appliance {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for folder in ["drive", "tls", "state"] {
            fs::create_dir(at(folder)).unwrap();
        }
        format::format(&at("drive"), "10%".parse().unwrap(), clock::wall()).unwrap();
        let both = [("ecdsa", &rcgen::PKCS_ECDSA_P256_SHA256), ("rsa", &rcgen::PKCS_RSA_SHA256)];
        let mut trust = String::new();
        for (name, kind) in both {
            let key = rcgen::KeyPair::generate_for(kind).unwrap();
            let mut made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
            // OpenSSL 1.0.2 looks for what it trusts by this name, and takes the first.
            made.distinguished_name.push(rcgen::DnType::CommonName, name);
            let made = made.self_signed(&key).unwrap().pem();
            trust += &made;
            fs::write(at(&format!("tls/{name}.pem")), made).unwrap();
            fs::write(at(&format!("tls/{name}.key")), key.serialize_pem()).unwrap();
        }
        fs::write(at("trust.pem"), trust).unwrap();
        let authority = Authority::create(clock::wall()).unwrap();
        held::identity_of("a1", &authority).save(&at("state")).unwrap();
        held::put(&at("drive"), &at("state"));
        let [newer, older] = free_ports();
        let text = format!(
            "name = \"a1\"\nstate = \"{place}/state\"\n[serve]\n\
             listen = [\"127.0.0.1:{newer}\", \"127.0.0.1:{older}\"]\n\
             tls12 = [\"127.0.0.1:{older}\"]\n\
             certificate = \"{place}/tls/ecdsa.pem\"\nkey = \"{place}/tls/ecdsa.key\"\n\
             second_certificate = \"{place}/tls/rsa.pem\"\nsecond_key = \"{place}/tls/rsa.key\"\n\
             workers = 1\n[drives]\npaths = [\"{place}/drive\"]\n\
             [control]\nurl = \"https://127.0.0.1:9\"\n[process]\nsandbox = \"off\"\n",
            place = place.path().display(),
        );
        fs::write(at("a.toml"), text).unwrap();
        let log = fs::File::create(at("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
            .args(["serve", "--config"])
            .arg(at("a.toml"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let appliance = Self { place, newer, older, child, first: Cell::default() };
        // Until the first audit has found the film, it is not known.
        let start = Instant::now();
        while !appliance.serves() {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not serve the film");
        }
        appliance
    }

    fn serves(&self) -> bool {
        let certificate = CertificateDer::from_pem_file(self.at("tls/ecdsa.pem")).unwrap();
        let Ok(tcp) = TcpStream::connect(("127.0.0.1", self.newer)) else { return false };
        let answer = held::exchange(&tcp, Some(&certificate), &held::request(&held::url()));
        answer.is_ok_and(|answer| held::body(answer).is_some_and(|body| body == held::content()))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// What a client is, in the words of its own command line, and what it is to say afterwards.
    fn check(&self, program: &str, words: &str, wanted: &[&str]) {
        let mut said = String::new();
        let answer = self.run(program, words, &mut said);
        let (words, status) = (format!("{program} {words}"), answer.get(..12));
        assert_eq!(status, Some(&b"HTTP/1.1 200"[..]), "{words}: {said}");
        assert!(held::body(answer) == Some(held::content()), "{words}: wrong bytes");
        for part in wanted {
            assert!(said.contains(part), "{words}: no \"{part}\" in {said}");
        }
    }

    /// The answer that it got, and what it said of the connection.
    fn run(&self, program: &str, words: &str, said: &mut String) -> Vec<u8> {
        let log = self.at("client.log");
        let mut command = Command::new(program);
        command.args(words.split_whitespace().map(|word| {
            word.replace("TRUST", &self.at("trust.pem").display().to_string())
                .replace("OLDER", &self.older.to_string())
                .replace("NEWER", &self.newer.to_string())
                .replace("LOG", &log.display().to_string())
                .replace("PATH", &held::url())
        }));
        let answer = talk(&mut command, self.first.get(), said);
        said.push_str(&fs::read_to_string(log).unwrap_or_default());
        answer
    }
}

/// Asks for the film through this client, which is told `first` before.
fn talk(command: &mut Command, first: &str, said: &mut String) -> Vec<u8> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It stays open: at its end, some clients close before they have the answer.
    let mut input = child.stdin.take().unwrap();
    let request = [first, &held::request(&held::url())].concat();
    let _ = input.write_all(request.as_bytes());
    let mut answer = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut answer).unwrap();
    child.stderr.take().unwrap().read_to_string(said).unwrap();
    child.wait().unwrap();
    answer
}

/// Whether a client is tried: one that is not installed fails the test, unless it may be absent.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there =
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).exists());
    let may_be_absent = std::env::var_os("NEARCAST_WITHOUT_CLIENTS").is_some();
    assert!(
        there || may_be_absent,
        "{program} is not installed: ./x check installs it, or set NEARCAST_WITHOUT_CLIENTS=1"
    );
    there
}

#[test]
fn openssl_plays_with_each_version_kind_of_key_and_cipher() {
    if !is_there("openssl") {
        return;
    }
    let appliance = Appliance::start();
    let check = |words: &str, wanted: &[&str]| {
        let words = format!("s_client -brief -ign_eof -CAfile TRUST -verify_return_error {words}");
        appliance.check("openssl", &words, wanted);
    };
    let (old, new) = ("-connect 127.0.0.1:OLDER", "-connect 127.0.0.1:NEWER");
    for (sigalgs, kind) in [
        ("ECDSA+SHA256", "Signature type: ECDSA"),
        ("rsa_pss_rsae_sha256", "Signature type: RSA-PSS"),
        ("RSA+SHA256", "Signature type: RSA"),
        ("RSA+SHA256:ECDSA+SHA256", "Signature type: ECDSA"),
    ] {
        let words = format!("{old} -tls1_2 -sigalgs {sigalgs}");
        check(&words, &["Protocol version: TLSv1.2", kind, "Hash used: SHA256"]);
    }
    for (sigalgs, kind) in [
        ("ECDSA+SHA256", "Signature type: ECDSA"),
        ("rsa_pss_rsae_sha256", "Signature type: RSA-PSS"),
    ] {
        for listener in [old, new] {
            let words = format!("{listener} -tls1_3 -sigalgs {sigalgs}");
            check(&words, &["Protocol version: TLSv1.3", kind]);
        }
    }
    for cipher in ["AES128-GCM-SHA256", "AES256-GCM-SHA384", "CHACHA20-POLY1305"] {
        for key in ["RSA", "ECDSA"] {
            let suite = format!("ECDHE-{key}-{cipher}");
            check(&format!("{old} -tls1_2 -cipher {suite}"), &[&suite]);
        }
    }
    for suite in ["AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256"] {
        let suite = format!("TLS_{suite}");
        check(&format!("{new} -tls1_3 -ciphersuites {suite}"), &[&suite]);
    }
    for refused in [
        format!("{new} -tls1_2"),
        // A key exchange that a thief of the key can read afterwards, and CBC.
        format!("{old} -tls1_2 -cipher AES128-GCM-SHA256"),
        format!("{old} -tls1_2 -cipher ECDHE-RSA-AES128-SHA"),
        format!("{old} -tls1_1 -cipher ALL:@SECLEVEL=0"),
    ] {
        let mut said = String::new();
        let answer = appliance.run("openssl", &format!("s_client -brief {refused}"), &mut said);
        assert!(answer.is_empty() && said.contains("alert"), "{refused}: {said}");
    }
}

#[test]
fn curl_plays_with_each_version_and_kind_of_key() {
    if !is_there("curl") {
        return;
    }
    let appliance = Appliance::start();
    let check = |words: &str, wanted: &str| {
        let words = format!("-siv --cacert TRUST {words}");
        appliance.check("curl", &words, &[wanted]);
    };
    let (old, new) = ("https://localhost:OLDERPATH", "https://localhost:NEWERPATH");
    check(new, "TLSv1.3 / ");
    check(old, "TLSv1.3 / ");
    for suite in ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"] {
        check(&format!("{old} --tls-max 1.2 --ciphers {suite}"), &format!("TLSv1.2 / {suite}"));
    }
}

#[test]
fn gnutls_plays_resumes_and_changes_its_keys() {
    if !is_there("gnutls-cli") {
        return;
    }
    let appliance = Appliance::start();
    let check = |words: &str, wanted: &[&str]| {
        let words = format!("--x509cafile=TRUST --logfile=LOG {words} localhost");
        appliance.check("gnutls-cli", &words, wanted);
    };
    let only = "--port=OLDER --priority=NORMAL:-VERS-ALL";
    for (version, name, ecdsa) in [
        ("1.2", "(TLS1.2-X.509)", "ECDSA-SHA256"),
        ("1.3", "(TLS1.3-X.509)", "ECDSA-SECP256R1-SHA256"),
    ] {
        for sign in [ecdsa, "RSA-PSS-RSAE-SHA256"] {
            let words = format!("{only}:+VERS-TLS{version}:-SIGN-ALL:+SIGN-{sign}");
            check(&words, &[name, &format!("({sign})")]);
        }
        for cipher in ["CHACHA20-POLY1305", "AES-128-GCM"] {
            let words = format!("{only}:+VERS-TLS{version}:-CIPHER-ALL:+{cipher}");
            check(&words, &[name, &format!("({cipher})")]);
        }
        let words = format!("{only}:+VERS-TLS{version} --resume");
        check(&words, &["This is a resumed session"]);
    }
    // Its key, and then ours as it asks for: KeyUpdate of RFC 8446 section 4.6.3.
    let words = format!("{only}:+VERS-TLS1.3 --inline-commands");
    appliance.first.set("^rekey^\n");
    check(&words, &["Rekey was completed"]);
}

/// Connects with the options of its first argument, says its input, and writes what comes.
const OLD_CLIENT: &str = "\
    const tls = require('tls'), fs = require('fs'), given = JSON.parse(process.argv[1]); \
    given.ca = given.ca.map(name => fs.readFileSync(name)); \
    const socket = tls.connect(given, () => { \
        process.stderr.write([socket.getProtocol(), socket.getCipher().name, \
            'OpenSSL ' + process.versions.openssl].join(' ')); \
        process.stdin.pipe(socket); \
    }); \
    socket.on('end', () => process.exit(0)); \
    socket.pipe(process.stdout);";

#[test]
fn openssl_1_0_2_plays_with_both_kinds_of_key() {
    let Some(node) = std::env::var_os("OLD_NODE") else {
        // It is in no package: `./x tlsfuzzer` fetches one.
        return;
    };
    let appliance = Appliance::start();
    for suite in ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"] {
        let options = serde_json::json!({
            "host": "127.0.0.1",
            "servername": "localhost",
            "port": appliance.older,
            "ciphers": suite,
            "ca": [appliance.at("tls/ecdsa.pem"), appliance.at("tls/rsa.pem")],
        });
        let mut command = Command::new(&node);
        command.args(["-e", OLD_CLIENT]).arg(options.to_string());
        let mut said = String::new();
        let answer = talk(&mut command, "", &mut said);
        assert_eq!(answer.get(..12), Some(&b"HTTP/1.1 200"[..]), "{suite}: {said}");
        assert!(held::body(answer) == Some(held::content()), "{suite}: wrong bytes");
        assert!(said.contains(&format!("TLSv1.2 {suite} OpenSSL 1.0.2")), "{said}");
    }
}
