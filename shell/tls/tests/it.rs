//! Our sessions against rustls's own client: whatever one side sends, the other reads.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::io::{Cursor, Read, Write};
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tls::{Acceptor, Progress, Session, TlsError};

struct Pair {
    client: ClientConnection,
    session: Box<Session>,
    early: Vec<u8>,
    incoming: Vec<u8>,
}

fn acceptor() -> (Acceptor, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (Acceptor::new(vec![made.cert.der().clone()], key).unwrap(), roots)
}

fn client_config(
    roots: RootCertStore,
    versions: &[&'static rustls::SupportedProtocolVersion],
    suites: Option<rustls::SupportedCipherSuite>,
) -> ClientConfig {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if let Some(suite) = suites {
        provider.cipher_suites = vec![suite];
    }
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

fn connect(acceptor: &Acceptor, config: Arc<ClientConfig>, step: usize) -> Result<Pair, TlsError> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    client.writer().write_all(b"early bird").unwrap();
    let mut handshake = Box::new(acceptor.accept().unwrap());
    for _ in 0..10 {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).unwrap();
        }
        let mut pieces = flight.chunks(step.min(flight.len().max(1)));
        while let Some(piece) = pieces.next() {
            let mut out = Vec::new();
            let progress = handshake.receive(piece, &mut out);
            client.read_tls(&mut Cursor::new(&out)).unwrap();
            let fed = client.process_new_packets();
            match progress? {
                Progress::Pending(pending) => handshake = pending,
                Progress::Done { session, early, rest } => {
                    fed.unwrap();
                    let mut incoming = rest;
                    pieces.for_each(|piece| incoming.extend_from_slice(piece));
                    return Ok(Pair { client, session, early, incoming });
                }
            }
        }
    }
    panic!("the handshake did not end");
}

impl Pair {
    fn send_to_client(&mut self, parts: [&[u8]; 2]) -> Vec<u8> {
        let mut out =
            vec![0; Session::sealed_len_max([parts[0].len(), parts[1].len()], tls::RECORD_LEN_MAX)];
        let len = self.session.seal(parts, &mut out).unwrap();
        self.feed_client(&out[..len])
    }

    fn feed_client(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut received = Vec::new();
        while !bytes.is_empty() {
            self.client.read_tls(&mut bytes).unwrap();
            let state = self.client.process_new_packets().unwrap();
            let mut content = vec![0; state.plaintext_bytes_to_read()];
            self.client.reader().read_exact(&mut content).unwrap();
            received.extend(content);
        }
        received
    }

    fn send_to_server(&mut self, content: &[u8]) -> Result<(Vec<u8>, bool), TlsError> {
        self.client.writer().write_all(content).unwrap();
        while self.client.wants_write() {
            self.client.write_tls(&mut self.incoming).unwrap();
        }
        let mut received = Vec::new();
        let mut deliver = |bytes: &[u8]| received.extend_from_slice(bytes);
        let opened = self.session.open(&mut self.incoming, &mut deliver)?;
        self.incoming.drain(..opened.consumed);
        Ok((received, opened.closed))
    }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 253).to_le_bytes()[0]).collect()
}

#[test]
fn what_we_seal_a_client_reads_with_each_cipher_and_any_split() {
    let (acceptor, roots) = acceptor();
    for suite in rustls::crypto::aws_lc_rs::default_provider().cipher_suites {
        if suite.tls13().is_none() {
            continue;
        }
        let config = client_config(roots.clone(), &[&rustls::version::TLS13], Some(suite));
        let config = Arc::new(config);
        for step in [1, 100, 100_000] {
            let mut pair = connect(&acceptor, config.clone(), step).unwrap();
            let (received, closed) = pair.send_to_server(b" gets the worm").unwrap();
            let all = [pair.early.clone(), received].concat();
            assert_eq!((&all[..], closed), (&b"early bird gets the worm"[..], false));
            for len in [0, 1, 16_383, 16_384, 16_385, 262_144] {
                let body = content(len);
                assert_eq!(pair.send_to_client([b"head", &body]), [b"head", &body[..]].concat());
            }
        }
    }
}

#[test]
fn tickets_let_a_client_resume() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS13], None));
    let mut pair = connect(&acceptor, config.clone(), 100_000).unwrap();
    pair.send_to_client([b"x", b""]);
    let pair = connect(&acceptor, config, 100_000).unwrap();
    assert_eq!(pair.client.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn key_updates_are_followed_and_answered_and_bounded() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS13], None));
    let mut pair = connect(&acceptor, config, 100_000).unwrap();
    let mut failed = None;
    for round in 0..100_u8 {
        pair.client.refresh_traffic_keys().unwrap();
        match pair.send_to_server(&[round]) {
            Ok((received, _)) => assert!(received.ends_with(&[round])),
            Err(error) => {
                failed = Some((round, error));
                break;
            }
        }
        assert_eq!(pair.send_to_client([&[round], b"y"]), [round, b'y']);
    }
    assert_eq!(failed, Some((64, TlsError::Unexpected("number of key updates"))));
}

#[test]
fn both_sides_can_say_goodbye() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS13], None));
    let mut pair = connect(&acceptor, config, 100_000).unwrap();
    let mut out = [0; 64];
    let len = pair.session.close_notify(&mut out);
    pair.client.read_tls(&mut &out[..len]).unwrap();
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    pair.client.send_close_notify();
    assert!(pair.send_to_server(b"").unwrap().1);
}

#[test]
fn one_changed_bit_is_noticed() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS13], None));
    let mut pair = connect(&acceptor, config, 100_000).unwrap();
    pair.client.writer().write_all(b"GET").unwrap();
    pair.client.write_tls(&mut pair.incoming).unwrap();
    let last = pair.incoming.len() - 1;
    pair.incoming[last] ^= 1;
    let error = pair.session.open(&mut pair.incoming, &mut |_| {}).unwrap_err();
    assert_eq!(error, TlsError::Authentication);
    let mut out = [0; 64];
    let len = pair.session.alert(error.alert(), &mut out);
    pair.client.read_tls(&mut &out[..len]).unwrap();
    let told = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
    assert_eq!(pair.client.process_new_packets(), Err(told));
}

#[test]
fn tls_1_2_is_refused_with_a_clear_alert() {
    let (acceptor, roots) = acceptor();
    let config = client_config(roots, &[&rustls::version::TLS12], None);
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let (mut hello, mut out) = (Vec::new(), Vec::new());
    client.write_tls(&mut hello).unwrap();
    let result = Box::new(acceptor.accept().unwrap()).receive(&hello, &mut out);
    assert!(matches!(result, Err(TlsError::Handshake(_))));
    client.read_tls(&mut &out[..]).unwrap();
    let alert = rustls::AlertDescription::ProtocolVersion;
    assert_eq!(client.process_new_packets(), Err(rustls::Error::AlertReceived(alert)));
}

#[test]
fn rubbish_and_endless_handshakes_are_refused() {
    let (acceptor, _) = acceptor();
    let mut out = Vec::new();
    let result = Box::new(acceptor.accept().unwrap()).receive(b"GET / HTTP/1.1\r\n\r\n", &mut out);
    assert!(matches!(result, Err(TlsError::Handshake(_))));
    let result = Box::new(acceptor.accept().unwrap()).receive(&[22; 70_000], &mut out);
    assert!(matches!(result, Err(TlsError::TooLong(_))));
}
