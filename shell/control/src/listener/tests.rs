use super::*;
use std::time::{SystemTime, UNIX_EPOCH};

use identity::UnixSeconds;
use identity::authority::Authority;
use identity::credentials::{Credentials, provider};
use identity::member::Member;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{TlsConnector, client};
use wire::v1::identity::Enrolled;

struct Fleet {
    authority: Authority,
    address: SocketAddr,
    listener: BoundedListener,
    refused: Arc<Counter>,
    tls: Tls,
}

#[tokio::test]
async fn a_member_is_known_by_its_certificate_and_a_stranger_is_one() {
    let mut fleet = fleet(8, 8).await;
    let key = fleet.key(&Member::appliance("a1"));
    let (client, accepted) = tokio::join!(fleet.connect(Some(key)), accept(&mut fleet.listener));
    let (mut client, mut server) = (client.unwrap(), accepted);
    assert_eq!(server.seen.as_ref().unwrap().member, Member::appliance("a1"));
    client.write_all(b"ping").await.unwrap();
    let mut read = [0; 4];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"ping");

    let (client, server) = tokio::join!(fleet.connect(None), accept(&mut fleet.listener));
    assert!(client.is_ok() && server.seen.is_none());
    assert_eq!(fleet.refused.value(), 0);
}

#[tokio::test]
async fn whoever_does_not_shake_hands_holds_nobody_up_and_is_counted() {
    let mut fleet = fleet(8, 8).await;
    let silent = TcpStream::connect(fleet.address).await.unwrap();
    let mut garbage = TcpStream::connect(fleet.address).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let key = fleet.key(&Member::appliance("a1"));
    let (client, server) = tokio::join!(fleet.connect(Some(key)), accept(&mut fleet.listener));
    assert!(client.is_ok() && server.seen.is_some());
    let counted = async {
        while fleet.refused.value() < 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), counted).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn a_handshake_that_takes_too_long_ends_and_gives_its_place_back() {
    let mut fleet = fleet(1, 1).await;
    fleet.listener.times.handshake = Duration::from_millis(20);
    let silent = TcpStream::connect(fleet.address).await.unwrap();
    let key = fleet.key(&Member::appliance("a1"));
    // There is one place, and the silent one has it.
    let both = async { tokio::join!(fleet.connect(Some(key)), accept(&mut fleet.listener)) };
    let (client, server) = timeout(Duration::from_secs(10), both).await.expect("it got a place");
    assert!(client.is_ok() && server.seen.is_some());
    assert_eq!(fleet.refused.value(), 1);
    drop(silent);
}

#[tokio::test]
async fn strangers_have_few_places_and_members_the_others() {
    let mut fleet = fleet(8, 1).await;
    let (first, held) = tokio::join!(fleet.connect(None), accept(&mut fleet.listener));
    let key = fleet.key(&Member::appliance("a1"));
    let (second, member) = (fleet.connect(None), fleet.connect(Some(key)));
    let others = async { (second.await, member.await) };
    let ((second, member), server) = tokio::join!(others, accept(&mut fleet.listener));
    assert!(server.seen.is_some(), "the second stranger was turned away");
    let mut second = second.unwrap();
    let told = second.read(&mut [0; 1]).await;
    assert!(matches!(told, Ok(0) | Err(_)));
    drop((first, held, member));
}

#[tokio::test]
async fn a_stranger_that_goes_on_and_on_is_cut_off_and_a_member_is_not() {
    let mut fleet = fleet(8, 8).await;
    fleet.listener.times.stranger = Duration::from_millis(20);
    let key = fleet.key(&Member::appliance("a1"));
    let (client, mut server) = tokio::join!(fleet.connect(None), accept(&mut fleet.listener));
    let mut client = client.unwrap();
    let talks = tokio::spawn(async move { while client.write_all(b".").await.is_ok() {} });
    let cut_off = async { while server.read(&mut [0; 64]).await.is_ok() {} };
    timeout(Duration::from_secs(5), cut_off).await.expect("it has an end");
    drop(server);
    talks.await.unwrap();

    let (client, server) = tokio::join!(fleet.connect(Some(key)), accept(&mut fleet.listener));
    assert!(client.is_ok() && server.end.is_none());
}

#[tokio::test]
async fn a_certificate_that_was_replaced_is_shown_to_the_next() {
    let mut fleet = fleet(8, 8).await;
    let (before, held) = tokio::join!(fleet.connect(None), accept(&mut fleet.listener));
    let config = credentials(&fleet.authority, &Member::control()).0.server_tls(true).unwrap();
    fleet.tls.replace(config);
    let (after, held_too) = tokio::join!(fleet.connect(None), accept(&mut fleet.listener));
    let shown = |stream: &client::TlsStream<TcpStream>| {
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    assert_ne!(shown(&before.unwrap()), shown(&after.unwrap()));
    drop((held, held_too));
}

async fn fleet(connections_max: usize, strangers_max: usize) -> Fleet {
    let authority = Authority::create(now()).unwrap();
    let config = credentials(&authority, &Member::control()).0.server_tls(true).unwrap();
    let refused = Arc::new(Counter::default());
    let tls = Tls::new(config, refused.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = BoundedListener::new(listener, connections_max, Some(tls.clone()));
    Fleet { authority, address, listener: listener.strangers(strangers_max), refused, tls }
}

type Key = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

impl Fleet {
    fn key(&self, member: &Member) -> Key {
        let (_, key, certificate) = credentials(&self.authority, member);
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        (vec![certificate], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
    }

    /// A client; the future borrows nothing, so that the listener can be polled beside it.
    fn connect(
        &self,
        key: Option<Key>,
    ) -> impl Future<Output = io::Result<client::TlsStream<TcpStream>>> + use<> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.certificate_der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match key {
            Some((chain, key)) => config.with_client_auth_cert(chain, key).unwrap(),
            None => config.with_no_client_auth(),
        };
        let (address, name) = (self.address, Member::control().host());
        async move {
            let stream = TcpStream::connect(address).await?;
            let connector = TlsConnector::from(Arc::new(config));
            connector.connect(ServerName::try_from(name).unwrap(), stream).await
        }
    }
}

async fn accept(listener: &mut BoundedListener) -> BoundedStream {
    listener.accept().await.0
}

fn credentials(authority: &Authority, member: &Member) -> (Credentials, String, String) {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let issued = authority.issue(member, &request, [7; 16], now(), 3600).unwrap();
    let given = Enrolled {
        certificate: issued.certificate.clone(),
        authority: authority.certificate_pem().to_owned(),
        signing_keys: Vec::new(),
    };
    let key = key.serialize_pem();
    (Credentials::new(&key, &given).unwrap(), key, issued.certificate)
}

fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs())
}
