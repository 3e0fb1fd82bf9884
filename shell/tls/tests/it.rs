//! Our sessions against rustls's own client: whatever one side sends, the other reads.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::io::{Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::units::UnixSeconds;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore};
use tls::{Acceptor, Kernel, Kernels, Progress, Session, TicketKey, Tickets, TlsError, Versions};

struct Pair {
    client: ClientConnection,
    session: Box<Session>,
    incoming: Vec<u8>,
}

fn acceptor() -> (Acceptor, RootCertStore) {
    acceptor_with(&rcgen::PKCS_ECDSA_P256_SHA256)
}

fn acceptor_with(kind: &'static rcgen::SignatureAlgorithm) -> (Acceptor, RootCertStore) {
    let signing = rcgen::KeyPair::generate_for(kind).unwrap();
    let made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = made.self_signed(&signing).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let key = PrivateKeyDer::try_from(signing.serialize_der()).unwrap();
    (Acceptor::new(vec![certificate.der().clone()], key).unwrap(), roots)
}

/// The key that the suite of TLS 1.2 asks for.
fn acceptor_for(suite: rustls::SupportedCipherSuite) -> (Acceptor, RootCertStore) {
    let is_rsa = format!("{suite:?}").contains("_RSA_");
    acceptor_with(if is_rsa { &rcgen::PKCS_RSA_SHA256 } else { &rcgen::PKCS_ECDSA_P256_SHA256 })
}

/// One acceptor for each library that seals, under one certificate.
fn acceptors(suite: rustls::SupportedCipherSuite) -> (Vec<Acceptor>, RootCertStore) {
    let (acceptor, roots) = acceptor_for(suite);
    let with = |kernel| acceptor.clone().sealed_by(Kernels { aes_128: kernel, aes_256: kernel });
    (Kernel::ALL.map(with).into(), roots)
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
    let mut handshake = Box::new(acceptor.accept(Versions::Tls12Too).unwrap());
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
                Progress::Done { session, rest } => {
                    fed.unwrap();
                    let mut incoming = rest;
                    pieces.for_each(|piece| incoming.extend_from_slice(piece));
                    return Ok(Pair { client, session, incoming });
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
    for suite in rustls::crypto::aws_lc_rs::default_provider().cipher_suites {
        let (acceptors, roots) = acceptors(suite);
        let config = client_config(roots.clone(), &[suite.version()], Some(suite));
        let config = Arc::new(config);
        let steps = [1, 100, 100_000];
        let all = acceptors.iter().flat_map(|acceptor| steps.map(|step| (acceptor, step)));
        for (acceptor, step) in all {
            let mut pair = connect(acceptor, config.clone(), step).unwrap();
            let (received, closed) = pair.send_to_server(b" gets the worm").unwrap();
            assert_eq!((&received[..], closed), (&b"early bird gets the worm"[..], false));
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
    assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Resumed));
}

#[test]
fn a_player_resumes_at_another_appliance_of_the_site_and_at_no_other() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let appliance = |keys: &[TicketKey], clock: &Arc<AtomicU64>| {
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let clock = Arc::clone(clock);
        let tickets = Tickets::new(move || UnixSeconds(clock.load(Ordering::Relaxed)));
        tickets.install(keys);
        Acceptor::with_tickets(vec![made.cert.der().clone()], key, tickets).unwrap()
    };
    let key = |n: u8, begins: u64| TicketKey {
        name: [n; 16],
        secret: [n; 32],
        begins: UnixSeconds(begins),
        ends: UnixSeconds(begins + 12 * 3600),
    };
    let clock = Arc::new(AtomicU64::new(1000));
    let here = appliance(&[key(1, 0), key(2, 6 * 3600)], &clock);
    let sibling = appliance(&[key(1, 0), key(2, 6 * 3600)], &clock);
    let elsewhere = appliance(&[key(3, 0)], &clock);
    let kind = |at: &Acceptor, config: &Arc<ClientConfig>| {
        let mut pair = connect(at, config.clone(), 100_000).unwrap();
        // The ticket comes with the first content, and the player is served in any case.
        assert_eq!(pair.send_to_client([b"x", b""]), b"x");
        pair.client.handshake_kind().unwrap()
    };
    let player = || Arc::new(client_config(roots.clone(), &[&rustls::version::TLS13], None));
    let (first, second) = (player(), player());
    assert_eq!(kind(&here, &first), HandshakeKind::Full);
    assert_eq!(kind(&sibling, &first), HandshakeKind::Resumed);
    assert_eq!(kind(&here, &second), HandshakeKind::Full);
    assert_ne!(kind(&elsewhere, &second), HandshakeKind::Resumed);
    // After a rotation what was sealed before is still good, until its key ends.
    let third = player();
    kind(&here, &third);
    clock.store(7 * 3600, Ordering::Relaxed);
    assert_eq!(kind(&sibling, &third), HandshakeKind::Resumed);
    let fourth = player();
    kind(&here, &fourth);
    clock.store(19 * 3600, Ordering::Relaxed);
    assert_ne!(kind(&sibling, &fourth), HandshakeKind::Resumed);
}

#[test]
fn a_session_that_rested_goes_on_where_it_was() {
    let suites = rustls::crypto::aws_lc_rs::default_provider().cipher_suites.into_iter();
    let each = |suite| {
        let (acceptors, roots) = acceptors(suite);
        acceptors.into_iter().map(move |acceptor| (suite, acceptor, roots.clone()))
    };
    for (suite, acceptor, roots) in suites.flat_map(each) {
        let config = client_config(roots.clone(), &[suite.version()], Some(suite));
        let mut pair = connect(&acceptor, Arc::new(config), 100_000).unwrap();
        for round in 0..3_u8 {
            assert_eq!(pair.send_to_client([b"head", &[round; 100]])[4..], [round; 100]);
            pair.session.rest();
            assert!(pair.send_to_server(&[round]).unwrap().0.ends_with(&[round]));
            pair.session.rest();
        }
        let mut goodbye = vec![0; 100];
        let len = pair.session.close_notify(&mut goodbye);
        pair.client.read_tls(&mut &goodbye[..len]).unwrap();
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn early_data_is_not_offered_and_a_resumed_session_has_keys_of_its_own() {
    let (acceptor, roots) = acceptor();
    let mut config = client_config(roots, &[&rustls::version::TLS13], None);
    config.enable_early_data = true;
    let config = Arc::new(config);
    let mut first = connect(&acceptor, config.clone(), 100_000).unwrap();
    first.send_to_client([b"x", b""]);
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config.clone(), name).unwrap();
    assert!(client.early_data().is_none(), "the ticket allows none");
    let resumed = connect(&acceptor, config, 100_000).unwrap();
    assert_eq!(resumed.client.handshake_kind(), Some(HandshakeKind::Resumed));
    // A resumption without a key exchange has no group; here there always is one.
    assert!(resumed.client.negotiated_key_exchange_group().is_some());
}

#[test]
fn key_updates_are_followed_and_answered_and_bounded() {
    let (acceptors, roots) =
        acceptors(rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256);
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS13], None));
    for (acceptor, kernel) in acceptors.iter().zip(Kernel::ALL) {
        let session = follow_key_updates(acceptor, config.clone());
        let session = format!("{session:?}");
        assert!(session.contains(&format!("kernel: {kernel:?}")), "{session}");
    }
}

fn follow_key_updates(acceptor: &Acceptor, config: Arc<ClientConfig>) -> Box<Session> {
    let mut pair = connect(acceptor, config, 100_000).unwrap();
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
    pair.session
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
    let len = pair.session.alert(&error, &mut out);
    pair.client.read_tls(&mut &out[..len]).unwrap();
    let told = rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac);
    assert_eq!(pair.client.process_new_packets(), Err(told));
}

#[test]
fn of_the_ciphers_the_clients_order_counts() {
    use rustls::crypto::aws_lc_rs::cipher_suite::*;
    let new = [TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384];
    let old = [
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ];
    let (acceptor, roots) = acceptor();
    for mut suites in [new, old] {
        for _ in 0..suites.len() {
            let mut provider = rustls::crypto::aws_lc_rs::default_provider();
            provider.cipher_suites = suites.to_vec();
            let config = ClientConfig::builder_with_provider(Arc::new(provider))
                .with_protocol_versions(&[suites[0].version()])
                .unwrap()
                .with_root_certificates(roots.clone())
                .with_no_client_auth();
            let mut pair = connect(&acceptor, Arc::new(config), 100_000).unwrap();
            assert_eq!(pair.client.negotiated_cipher_suite(), Some(suites[0]));
            assert_eq!(pair.send_to_client([b"head", b"body"]), b"headbody");
            suites.rotate_left(1);
        }
    }
}

#[test]
fn players_of_tls_1_2_resume_by_tickets() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots.clone(), &[&rustls::version::TLS12], None));
    let mut pair = connect(&acceptor, config.clone(), 100_000).unwrap();
    pair.send_to_client([b"x", b""]);
    let mut pair = connect(&acceptor, config, 100_000).unwrap();
    assert_eq!(pair.client.handshake_kind(), Some(HandshakeKind::Resumed));
    assert_eq!(pair.send_to_client([b"head", b"body"]), b"headbody");
    let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
    let both = connect(&acceptor, Arc::new(client_config(roots, &versions, None)), 100).unwrap();
    assert_eq!(both.client.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
}

#[test]
fn in_tls_1_2_too_a_changed_bit_is_noticed_and_a_goodbye_is_heard() {
    for suite in rustls::crypto::aws_lc_rs::default_provider().cipher_suites {
        let (acceptor, roots) = acceptor_for(suite);
        let config = Arc::new(client_config(roots.clone(), &[suite.version()], Some(suite)));
        // The header of a sealed record, its explicit nonce or body, and its tag.
        for at in [0, 5, 12, 100] {
            let mut pair = connect(&acceptor, config.clone(), 100_000).unwrap();
            pair.send_to_server(b"").unwrap();
            pair.client.writer().write_all(&[7; 200]).unwrap();
            pair.client.write_tls(&mut pair.incoming).unwrap();
            pair.incoming[at] ^= 4;
            let error = pair.session.open(&mut pair.incoming, &mut |_| {}).unwrap_err();
            let is_type = at == 0 && suite.tls13().is_some();
            assert_eq!(error == TlsError::Authentication, !is_type, "{suite:?} {at}: {error}");
        }
        let mut pair = connect(&acceptor, config, 100_000).unwrap();
        pair.client.send_close_notify();
        assert!(pair.send_to_server(b"").unwrap().1);
        let mut goodbye = [0; 64];
        let len = pair.session.close_notify(&mut goodbye);
        pair.client.read_tls(&mut &goodbye[..len]).unwrap();
        assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn tls_1_2_is_refused_with_a_clear_alert_unless_the_listener_takes_it() {
    let (acceptor, roots) = acceptor();
    let config = client_config(roots, &[&rustls::version::TLS12], None);
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let (mut hello, mut out) = (Vec::new(), Vec::new());
    client.write_tls(&mut hello).unwrap();
    let result = Box::new(acceptor.accept(Versions::Tls13).unwrap()).receive(&hello, &mut out);
    assert!(matches!(result, Err(TlsError::Handshake(_))));
    client.read_tls(&mut &out[..]).unwrap();
    let alert = rustls::AlertDescription::ProtocolVersion;
    assert_eq!(client.process_new_packets(), Err(rustls::Error::AlertReceived(alert)));
}

#[test]
fn rubbish_and_endless_handshakes_are_refused() {
    let (acceptor, _) = acceptor();
    let mut out = Vec::new();
    let result = Box::new(acceptor.accept(Versions::Tls13).unwrap())
        .receive(b"GET / HTTP/1.1\r\n\r\n", &mut out);
    assert!(matches!(result, Err(TlsError::Handshake(_))));
    let result =
        Box::new(acceptor.accept(Versions::Tls13).unwrap()).receive(&[22; 70_000], &mut out);
    assert!(matches!(result, Err(TlsError::TooLong(_))));
}

/// What a client sends first, as records; its handshake message in pieces of `piece` bytes.
fn hello_in_pieces(piece: usize) -> Vec<Vec<u8>> {
    let (_, roots) = acceptor();
    let config = client_config(roots, &[&rustls::version::TLS13, &rustls::version::TLS12], None);
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello[5..].chunks(piece).map(|piece| record(22, piece)).collect()
}

/// Pieces of what a client sends first, and whether they are answered.
fn answered(acceptor: &Acceptor, mut client: ClientConnection, piece: usize) -> Vec<bool> {
    let mut handshake = Box::new(acceptor.accept(Versions::Tls12Too).unwrap());
    let (mut flight, mut out, mut answered) = (Vec::new(), Vec::new(), vec![]);
    client.write_tls(&mut flight).unwrap();
    // Once more if it is asked for anew.
    for _ in 0..2 {
        for bytes in flight.chunks(piece) {
            let Progress::Pending(pending) = handshake.receive(bytes, &mut out).unwrap() else {
                panic!("the client has not finished")
            };
            answered.push(pending.has_answered());
            handshake = pending;
        }
        if handshake.has_answered() {
            break;
        }
        client.read_tls(&mut Cursor::new(&out)).unwrap();
        client.process_new_packets().unwrap();
        flight.clear();
        client.write_tls(&mut flight).unwrap();
    }
    answered
}

#[test]
fn a_handshake_has_answered_when_it_has_made_its_signature() {
    let (acceptor, roots) = acceptor();
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let mut config = client_config(roots.clone(), &[version], None);
        config.resumption = rustls::client::Resumption::disabled();
        let of = |config: &ClientConfig, piece| {
            let name = ServerName::try_from("localhost").unwrap();
            let client = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
            answered(&acceptor, client, piece)
        };
        assert_eq!(of(&config, 100_000), [true], "{version:?}");
        let pieces = of(&config, 100);
        let (last, before) = pieces.split_last().unwrap();
        assert!(*last && before.iter().all(|answered| !answered), "{version:?} {pieces:?}");
    }
    // A share of a key of a group that the server does not know, and then of one that it does.
    use rustls::crypto::aws_lc_rs::kx_group::{MLKEM768, X25519};
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![MLKEM768, X25519];
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    assert_eq!(answered(&acceptor, client, 100_000), [false, true]);
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3], &len[..], content].concat()
}

#[test]
fn a_record_between_the_pieces_of_a_hello_is_told_and_ends_no_process() {
    let (acceptor, _) = acceptor();
    let pieces = hello_in_pieces(100);
    for (kind, content) in [(20, &[1][..]), (21, &[1, 0]), (21, &[]), (23, b"data"), (24, b"?")] {
        for versions in [Versions::Tls13, Versions::Tls12Too] {
            let sent = [&pieces[0][..], &record(kind, content)].concat();
            let mut out = Vec::new();
            let handshake = Box::new(acceptor.accept(versions).unwrap());
            let error = handshake.receive(&sent, &mut out).unwrap_err();
            assert_eq!(out[..5], [21, 3, 3, 0, 2], "{kind}: {error}");
            assert_eq!(out.len(), 7, "{kind}: one alert");
            assert_eq!(out[5], 2, "{kind}: a fatal one");
        }
    }
}

/// What a handshake answers to these bytes, and the alert that it ends with.
fn alert_to(acceptor: &Acceptor, versions: Versions, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let handshake = Box::new(acceptor.accept(versions).unwrap());
    handshake.receive(bytes, &mut out).unwrap_err();
    out
}

#[test]
fn a_record_in_the_open_that_is_too_long_is_told_so() {
    let (acceptor, _) = acceptor();
    for versions in [Versions::Tls13, Versions::Tls12Too] {
        let out = alert_to(&acceptor, versions, &record(22, &[1; 16_385]));
        assert_eq!(out, [21, 3, 3, 0, 2, 2, 22]);
    }
}

#[test]
fn in_tls_1_2_a_client_is_told_why_until_our_cipher_changes() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS12], None));
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    // The first piece of the client's key exchange, and another record before the second.
    sent.extend(record(22, &[16, 0, 0, 33, 32, 7]));
    sent.extend(record(20, &[1]));
    let out = alert_to(&acceptor, Versions::Tls12Too, &sent);
    assert_eq!(out[0], 22, "our hello goes before it");
    assert_eq!(out[out.len() - 7..], [21, 3, 3, 0, 2, 2, 10]);
}

#[test]
fn a_handshake_that_fails_before_our_flight_is_told_why() {
    let (acceptor, _) = acceptor();
    let mut out = Vec::new();
    let handshake = Box::new(acceptor.accept(Versions::Tls13).unwrap());
    handshake.receive(&[22; 70_000], &mut out).unwrap_err();
    assert_eq!(out, [21, 3, 3, 0, 2, 2, 50]);
}

/// A hello of TLS 1.3 that names this version before its suites, with these extensions.
fn hello(legacy_version: [u8; 2], extensions: &[&[u8]]) -> Vec<u8> {
    let extensions = extensions.concat();
    let body = [
        &legacy_version[..],
        &[7; 32],
        // No session, TLS_AES_128_GCM_SHA256, no compression.
        &[0, 0, 2, 0x13, 1, 1, 0],
        &u16::try_from(extensions.len()).unwrap().to_be_bytes(),
        &extensions,
    ]
    .concat();
    let len = u32::try_from(body.len()).unwrap().to_be_bytes();
    record(22, &[&[1][..], &len[1..], &body].concat())
}

/// supported_versions with TLS 1.3, supported_groups with X25519, and signature_algorithms with
/// that of the certificate.
const EXTENSIONS: [&[u8]; 3] =
    [&[0, 43, 0, 3, 2, 3, 4], &[0, 10, 0, 4, 0, 2, 0, 29], &[0, 13, 0, 4, 0, 2, 4, 3]];

#[test]
fn a_hello_of_ssl_is_refused_whatever_else_it_says() {
    let (acceptor, _) = acceptor();
    for versions in [Versions::Tls13, Versions::Tls12Too] {
        for legacy in [[0, 0], [2, 0], [2, 255], [3, 0]] {
            let out = alert_to(&acceptor, versions, &hello(legacy, &EXTENSIONS));
            assert_eq!(out, [21, 3, 3, 0, 2, 2, 70], "{legacy:?}");
        }
        // It is asked for a share of a key, and so understood.
        let share: &[u8] = &[0, 51, 0, 2, 0, 0];
        let sent = hello([3, 1], &[&EXTENSIONS[..], &[share]].concat());
        let handshake = Box::new(acceptor.accept(versions).unwrap());
        let mut out = Vec::new();
        assert!(matches!(handshake.receive(&sent, &mut out), Ok(Progress::Pending(_))));
        assert_eq!(out[..2], [22, 3]);
    }
}

#[test]
fn a_hello_without_a_share_of_a_key_is_told_of_the_extension() {
    let (acceptor, _) = acceptor();
    let out = alert_to(&acceptor, Versions::Tls13, &hello([3, 3], &EXTENSIONS));
    assert_eq!(out, [21, 3, 3, 0, 2, 2, 109]);
}

#[test]
fn another_message_before_the_hello_is_unexpected() {
    let (acceptor, _) = acceptor();
    for kind in [0, 2, 16, 20, 24] {
        let mut sent = hello([3, 3], &EXTENSIONS);
        sent[5] = kind;
        let out = alert_to(&acceptor, Versions::Tls12Too, &sent);
        assert_eq!(out, [21, 3, 3, 0, 2, 2, 10], "{kind}");
    }
}

proptest::proptest! {
    /// Any order of pieces of a hello, of other records, of rubbish, in any chunks: an answer or
    /// an error, and never a panic.
    #[test]
    fn no_order_of_records_ends_a_process(
        piece in 1..600_usize,
        moves in proptest::collection::vec((0..8_u8, 0..6_usize, 20..26_u8, 0..40_usize), 0..12),
        chunk in 1..2000_usize,
        tls12 in proptest::bool::ANY,
    ) {
        let (acceptor, _) = shared_acceptor();
        let mut records = hello_in_pieces(piece);
        for (what, at, kind, len) in moves {
            let at = at.min(records.len());
            match what {
                0 | 1 => records.insert(at, record(kind, &vec![kind; len])),
                2 => records.insert(at, record(21, &[1, 0])),
                3 => records.insert(at, record(20, &[1])),
                4 => records.insert(at, vec![kind; len]),
                5 => records.truncate(at),
                6 => if let Some(last) = records.last_mut() { last.truncate(len) },
                _ => records.rotate_left(at),
            }
        }
        let versions = if tls12 { Versions::Tls12Too } else { Versions::Tls13 };
        let mut handshake = Box::new(acceptor.accept(versions).unwrap());
        for bytes in records.concat().chunks(chunk) {
            let mut out = Vec::new();
            match handshake.receive(bytes, &mut out) {
                Ok(Progress::Pending(pending)) => handshake = pending,
                Ok(Progress::Done { .. }) => panic!("without the client's last flight"),
                Err(_) => {
                    proptest::prop_assert!(!out.is_empty(), "an alert says why");
                    break;
                }
            }
        }
    }
}

/// One for all rounds: a key takes long to make.
fn shared_acceptor() -> (Acceptor, RootCertStore) {
    static ONE: std::sync::OnceLock<(Acceptor, RootCertStore)> = std::sync::OnceLock::new();
    ONE.get_or_init(acceptor).clone()
}

/// A client that seals whatever it is told to: its keys are taken from rustls.
struct Liar {
    session: Box<Session>,
    sealing: ring::aead::LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    version_13: bool,
}

impl Liar {
    fn connect(version: &'static rustls::SupportedProtocolVersion) -> Self {
        let is_13 = version.version == rustls::ProtocolVersion::TLSv1_3;
        let (acceptor, roots) = acceptor();
        let suite = if is_13 {
            rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256
        } else {
            rustls::crypto::aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
        };
        let mut config = client_config(roots, &[version], Some(suite));
        config.enable_secret_extraction = true;
        let mut pair = connect(&acceptor, Arc::new(config), 100_000).unwrap();
        pair.send_to_server(b"").unwrap();
        let secrets = pair.client.dangerous_extract_secrets().unwrap();
        let (sequence, rustls::ConnectionTrafficSecrets::Aes128Gcm { key, iv }) = secrets.tx else {
            panic!("the suite is AES-128-GCM")
        };
        let key = ring::aead::UnboundKey::new(&ring::aead::AES_128_GCM, key.as_ref()).unwrap();
        Self {
            session: pair.session,
            sealing: ring::aead::LessSafeKey::new(key),
            iv: iv.as_ref().try_into().unwrap(),
            sequence,
            version_13: is_13,
        }
    }

    fn seal(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let nonce = seal::nonce(&self.iv, self.sequence);
        let mut body = content.to_vec();
        let (mut record, additional) = if self.version_13 {
            body.push(kind);
            let len = u16::try_from(body.len() + 16).unwrap().to_be_bytes();
            let header = [&[23, 3, 3], &len[..]].concat();
            (header.clone(), header)
        } else {
            let len = u16::try_from(body.len() + 24).unwrap().to_be_bytes();
            let header = [&[kind, 3, 3], &len[..], &nonce[4..]].concat();
            (header, seal::additional_12(self.sequence, kind, body.len()).to_vec())
        };
        self.sequence += 1;
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        let additional = ring::aead::Aad::from(additional);
        self.sealing.seal_in_place_append_tag(nonce, additional, &mut body).unwrap();
        record.extend(body);
        record
    }

    fn send_all(&mut self, records: &[(u8, &[u8])]) -> Result<(), TlsError> {
        records.iter().try_for_each(|(kind, content)| self.send(*kind, content).map(|_| ()))
    }

    fn send(&mut self, kind: u8, content: &[u8]) -> Result<tls::Opened, TlsError> {
        let mut record = self.seal(kind, content);
        self.session.open(&mut record, &mut |_| {})
    }
}

#[test]
fn records_that_break_a_rule_are_told_by_the_alert_of_that_rule() {
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    for version in [v12, v13] {
        Liar::connect(version).send(23, &[7; 16_384]).unwrap();
        let long = Liar::connect(version).send(23, &[7; 16_385]).unwrap_err();
        assert_eq!(long.alert(), 22, "{version:?}");
        let empty = Liar::connect(version).send(21, &[]).unwrap_err();
        assert_eq!(empty.alert(), 10, "{version:?}");
        let long = Liar::connect(version).send(21, &[1, 0, 1]).unwrap_err();
        assert_eq!(long.alert(), 50, "{version:?}");
    }
    for (message, alert) in [
        (&[24, 0, 0, 1, 2][..], 47),
        (&[24, 0, 0, 2, 0, 0], 50),
        (&[24, 0, 0, 0], 50),
        (&[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], 10),
        (&[1, 0, 0, 0], 10),
        (&[], 10),
        (&[1], 10),
    ] {
        let error = Liar::connect(v13).send(22, message).unwrap_err();
        assert_eq!(error.alert(), alert, "{message:?}: {error}");
    }
    for message in [&[24, 0, 0, 1, 0][..], &[24, 0, 0, 1, 1]] {
        for cut in 1..message.len() {
            let mut peer = Liar::connect(v13);
            peer.send(22, &message[..cut]).unwrap();
            peer.send(22, &message[cut..]).unwrap();
            let between = Liar::connect(v13).send_all(&[
                (22, &message[..cut]),
                (23, b"data"),
                (22, &message[cut..]),
            ]);
            assert_eq!(between.unwrap_err().alert(), 10);
        }
    }
    let again = Liar::connect(v12).send(22, &[1, 0, 0, 0]).unwrap_err();
    assert_eq!(again, TlsError::Renegotiation);
}

#[test]
fn a_client_that_wants_to_shake_hands_again_is_warned_and_told_goodbye() {
    let (acceptor, roots) = acceptor();
    let config = Arc::new(client_config(roots, &[&rustls::version::TLS12], None));
    let mut pair = connect(&acceptor, config, 100_000).unwrap();
    let mut out = [0; 100];
    let len = pair.session.alert(&TlsError::Renegotiation, &mut out);
    pair.client.read_tls(&mut &out[..len]).unwrap();
    assert!(pair.client.process_new_packets().unwrap().peer_has_closed());
}

#[test]
fn a_peer_that_goes_on_is_heard_and_one_that_failed_is_told_nothing() {
    let (v12, v13) = (&rustls::version::TLS12, &rustls::version::TLS13);
    for version in [v12, v13] {
        let mut peer = Liar::connect(version);
        for _ in 0..4 {
            assert!(!peer.send(21, &[1, 90]).unwrap().closed);
        }
        peer.send(21, &[1, 90]).unwrap_err();
        let goodbye = Liar::connect(version).send(21, &[1, 0]).unwrap();
        assert_eq!((goodbye.closed, goodbye.failed), (true, false));
        let failed = Liar::connect(version).send(21, &[2, 20]).unwrap();
        assert_eq!((failed.closed, failed.failed), (true, true));
    }
}
