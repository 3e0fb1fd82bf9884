//! A film of one file that an appliance holds before it starts, as fill would have left it, and a
//! URL that opens it: nobody is asked for anything.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use appliance::clock;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::member::Member;
use identity::signing::SigningKey;
use model::id::{Generation, ObjectId};
use model::manifest::{AssetVersion, File, Manifest, TokenKey, Trust};
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::{Bytes, UnixSeconds};
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use store::layout;
use wire::v1::signed::Kind;

/// Of the file: three blocks, the last not whole.
pub(crate) const LEN: usize = 600_000;

/// Its number.
pub(crate) const FILE: u32 = 700;

/// The bytes of the file.
pub(crate) fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i * 131 + i / 4096).to_le_bytes()[0]).collect()
}

/// Puts the film on `drive`, and its manifest into `state`.
pub(crate) fn put(drive: &Path, state: &Path) -> ObjectId {
    let content = content();
    let pieces = (0..).zip(content.chunks(BLOCK_LEN.as_usize()));
    let hashes: Vec<_> = pieces.map(|(at, piece)| block_hash(at, piece, false)).collect();
    let table: Vec<u8> = hashes.iter().flat_map(|hash| hash.0).collect();
    let len = Bytes::of(LEN);
    let object = Blocks::of_hashes(len, hashes).unwrap().id();
    let sections = layout::sections(len);
    let mut file = content;
    file.resize(sections.table_offset.as_usize(), 0);
    file.extend(table);
    file.resize(sections.footer_offset.as_usize(), 0);
    file.extend(layout::Footer { object, len }.encode());
    fs::write(drive.join(&*layout::object_file(&object).0), file).unwrap();
    fs::write(state.join("manifest.signed"), manifest(object)).unwrap();
    object
}

fn manifest(object: ObjectId) -> Vec<u8> {
    let file = File { object, len: Bytes::of(LEN), content_type: "video/mp4".into() };
    let version = AssetVersion {
        id: "film-1".parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: vec![],
        modified: UnixSeconds(784_111_777),
        pace: None,
        files: [("v.mp4".to_owned(), file)].into(),
    };
    let public_key = token_key().public_key().as_ref().try_into().unwrap();
    let manifest = Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(1),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
        trust: Trust::default(),
        numbers: BTreeMap::from([("film-1".parse().unwrap(), FILE.into())]),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: vec![Arc::new(version)],
    };
    let text = serde_json::to_vec(&wire::convert::manifest_out(&manifest)).unwrap();
    signer().sign(Kind::Manifest, &text)
}

fn token_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn signer() -> SigningKey {
    SigningKey::from_seed("s1", &[5; 32])
}

/// Path of the file, with a token that is good for 1000 s.
pub(crate) fn url() -> String {
    let expires = UnixSeconds(clock::wall().0 + 1000);
    let scope = Scope::whole("film-1").unwrap();
    let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
    let signature = token_key().sign(SigningInput::new("k1", grant).as_bytes()).as_ref().try_into();
    format!("/t/{}/film-1/v.mp4", assemble("k1", grant, &signature.unwrap()))
}

/// An identity for an hour, with which the film's manifest is believed.
pub(crate) fn identity_of(name: &str, authority: &Authority) -> Credentials {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let (member, now) = (Member::appliance(name), clock::wall());
    let serial = *name.bytes().cycle().take(16).collect::<Vec<_>>().as_array().unwrap();
    let issued = authority.issue(&member, &request, serial, now, 3600).unwrap();
    let public = signer().public();
    let given = wire::v1::identity::Enrolled {
        certificate: issued.certificate,
        authority: authority.certificate_pem().to_owned(),
        signing_keys: vec![wire::v1::manifest::TokenKey {
            kid: public.kid,
            public_key: public.public_key.iter().map(|byte| format!("{byte:02x}")).collect(),
        }],
    };
    Credentials::new(&key.serialize_pem(), &given).unwrap()
}

/// Says `request` over this connection, with TLS that believes `certificate` or without any, and
/// reads to the end.
pub(crate) fn exchange(
    tcp: &TcpStream,
    certificate: Option<&CertificateDer<'static>>,
    request: &str,
) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    let Some(certificate) = certificate else {
        let mut tcp = tcp;
        tcp.write_all(request.as_bytes())?;
        tcp.read_to_end(&mut answer)?;
        return Ok(answer);
    };
    let mut stream = secure(tcp, certificate);
    stream.write_all(request.as_bytes())?;
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// TLS over this connection that believes `certificate`.
pub(crate) fn secure<'t>(
    tcp: &'t TcpStream,
    certificate: &CertificateDer<'static>,
) -> StreamOwned<ClientConnection, &'t TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, tcp)
}

/// GET of a path, the only request of its connection.
pub(crate) fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

/// The body, if the status is 200.
pub(crate) fn body(mut answer: Vec<u8>) -> Option<Vec<u8>> {
    let head_len = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let body = answer.split_off(head_len);
    answer.starts_with(b"HTTP/1.1 200 ").then_some(body)
}

/// Ports that nobody has, each given once. They lie below those that the kernel gives to whoever
/// asks for any (from 32,768 on), which another could get before they are used, and in a place that
/// depends on the process.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id() % 250 * 32 + GIVEN.fetch_add(1, Ordering::Relaxed);
    let any = (0..1000).map(|_| 10_000 + u16::try_from(next() % 8_000).unwrap());
    let free = any.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.take(N).collect::<Vec<_>>().try_into().unwrap()
}
