//! Connections, bounded: so many at a time and from one network, and none holds a place for long
//! without asking something. With TLS or not, with the PROXY protocol or not.
//!
//! ```text
//! kernel ──> accept ──> crowd: a place ──> PROXY header ──> TLS ──> polls ──> hyper ──> router
//!              ^          | who goes for it      a deadline each                 |
//!              └── full ──┘                      <── told of each step, in each direction
//! ```
//!
//! A task per connection. Polls of steering are answered before hyper sees the connection, as long
//! as nothing else comes. What is under way when all must stop is answered first.

mod ending;
mod place;
mod polls;
mod proxy_protocol;
mod stream;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use identity::member::{self, Seen};
use model::topology::Prefix;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config;
use crate::connections::attempts::network;
use crate::metrics::DoorCounters;
use ending::Ending;
use place::{Holding, House, TIMES, Times};
use polls::{Ended, Polls};
use stream::{Answer, Asked, Line, Stream, Written};

pub(crate) use place::Place;
pub(crate) use polls::First;

/// A listener that keeps order.
pub(crate) struct Door {
    listener: TcpListener,
    tls: Option<Tls>,
    rules: Rules,
    times: Times,
    counters: Arc<DoorCounters>,
    first: Option<First>,
    straight: Option<Straight>,
    admits: Admits,
}

/// Whether the holder of a certificate of the authority's is a member now.
pub(crate) type Admits = Box<dyn Fn(&Seen) -> bool + Send + Sync>;

/// Answers some requests at once, without the router and what lies around it.
pub(crate) type Straight =
    Box<dyn Fn(&mut Request<Incoming>) -> Option<Response<String>> + Send + Sync>;

/// Who may come in, and how many.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Connections at a time.
    pub(crate) connections_max: usize,
    /// Of these from one address of version 4, or from one /64.
    pub(crate) per_address_max: usize,
    /// Proxies that are believed about their clients' addresses, and count against no address.
    pub(crate) proxies: Vec<Prefix>,
    /// Connections from them begin with a PROXY header.
    pub(crate) proxy_protocol: bool,
    /// A connection without a member's certificate lasts for `STRANGER_MAX` at most.
    pub(crate) is_for_members: bool,
}

/// How a listener speaks TLS. Cheap to clone; all clones share what [`Tls::replace`] changes.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    counters: Arc<DoorCounters>,
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// The address of the client, by its connection or by the word of a trusted proxy.
    pub(crate) address: IpAddr,
    /// The connection began with a PROXY header.
    pub(crate) is_proxied: bool,
}

/// Who is at the other end, where client certificates are asked for.
#[derive(Clone, Debug)]
pub(crate) struct FleetPeer {
    /// Where from. For logs at DEBUG.
    pub(crate) address: SocketAddr,
    /// What its certificate says; none for a stranger. The chain and the dates were good when the
    /// connection began: whether it is good now is for whoever asks.
    pub(crate) seen: Option<Arc<Seen>>,
}

/// A connection after its greeting.
struct Greeted {
    stream: Stream,
    peer: Peer,
    seen: Option<Arc<Seen>>,
}

impl Tls {
    /// Speaks TLS with `config`. Handshakes that fail are counted in `counters`.
    pub(crate) fn new(config: ServerConfig, counters: Arc<DoorCounters>) -> Self {
        Self { config: Arc::new(RwLock::new(Arc::new(config))), counters }
    }

    /// The connections from now on have this configuration: a new certificate, for example.
    pub(crate) fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What new connections have.
    #[cfg(test)]
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A handshake, if it is good and in time.
    async fn accept(&self, stream: TcpStream, place: &Place) -> Option<TlsStream<TcpStream>> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let handshake = TlsAcceptor::from(config).accept(stream);
        let reason = match timeout_at(place.deadline(), handshake).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        self.counters.handshakes_refused.count();
        tracing::debug!(reason, "no TLS handshake");
        None
    }
}

impl Door {
    pub(crate) fn new(
        listener: TcpListener,
        tls: Option<Tls>,
        rules: Rules,
        counters: Arc<DoorCounters>,
    ) -> Self {
        let stranger = rules.is_for_members.then_some(STRANGER_MAX);
        let times = Times { stranger, ..TIMES };
        let admits = Box::new(|_: &Seen| true);
        Self { listener, tls, rules, times, counters, first: None, straight: None, admits }
    }

    /// The same, where a certificate counts for nothing unless this says so, when a connection
    /// begins and at each request: who has one that was revoked is a stranger.
    pub(crate) fn admitting(self, admits: Admits) -> Self {
        Self { admits, ..self }
    }

    /// The same, where this answers before the router.
    pub(crate) fn with(self, straight: Straight) -> Self {
        Self { straight: Some(straight), ..self }
    }

    /// The same, where this answers before hyper.
    pub(crate) fn with_first(self, first: First) -> Self {
        Self { first: Some(first), ..self }
    }

    /// Serves until `stopped` says so, and then until all requests under way are answered.
    pub(crate) async fn serve(self, router: Router, mut stopped: watch::Receiver<bool>) {
        let Self { listener, tls, rules, times, counters, first, straight, admits } = self;
        let house = House::new(rules.connections_max, rules.per_address_max, times, counters);
        let stopping = stopped.clone();
        let host = Host { tls, rules, router, first, straight, admits, stopped: stopping };
        let host = Arc::new(host);
        // Each connection has a receiver; it is closed when the last of them is gone.
        let (all, one) = watch::channel(());
        loop {
            let entered = tokio::select! {
                entered = host.enter(&listener, &house) => entered,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            if let Some((stream, address, place)) = entered {
                let (host, one) = (host.clone(), one.clone());
                tokio::spawn(async move {
                    host.attend(stream, address, &place.0).await;
                    drop((place, one));
                });
            }
        }
        drop((listener, one));
        all.closed().await;
    }
}

/// An answer, or one that is being made.
enum Answering<F> {
    Straight(Response<String>),
    Routed(F),
}

/// What all connections of a listener share.
struct Host {
    tls: Option<Tls>,
    rules: Rules,
    router: Router,
    first: Option<First>,
    straight: Option<Straight>,
    admits: Admits,
    stopped: watch::Receiver<bool>,
}

impl Host {
    /// The next that comes and gets a place; none if it got none.
    async fn enter(
        &self,
        listener: &TcpListener,
        house: &Arc<House>,
    ) -> Option<(TcpStream, SocketAddr, Holding)> {
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                let peer = address.ip().to_canonical();
                let is_proxy = self.rules.is_proxy(peer);
                let place = house.enter((!is_proxy).then(|| network(peer))).await?;
                Some((stream, address, place))
            }
            Err(error) => {
                // Out of descriptors, or a connection that is gone already: wait and go on.
                tracing::warn!(%error, "cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
                None
            }
        }
    }

    /// Answers a connection's requests until it ends, is late or gives its place away.
    async fn attend(&self, stream: TcpStream, address: SocketAddr, place: &Arc<Place>) {
        let serve = async {
            let Some(greeted) = self.greet(stream, address, place).await else { return };
            let member = greeted.seen.as_deref().filter(|seen| (self.admits)(seen));
            if place.opened(member) {
                self.converse(greeted, address, place).await;
            }
        };
        let (mut given_away, mut serve) = (pin!(place.given_away()), pin!(serve));
        let mut is_listed = false;
        // The waker is listed once: each listing takes a lock.
        poll_fn(|context| {
            let is_told = !is_listed || place.is_given_away();
            is_listed = true;
            if is_told && given_away.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            serve.as_mut().poll(context)
        })
        .await;
    }

    /// What comes before HTTP; none if that is not in order or not in time.
    async fn greet(
        &self,
        mut stream: TcpStream,
        address: SocketAddr,
        place: &Place,
    ) -> Option<Greeted> {
        let mut peer = Peer { address: address.ip().to_canonical(), is_proxied: false };
        if self.rules.proxy_protocol && self.rules.is_proxy(peer.address) {
            peer.is_proxied = true;
            if let Some(client) = header(&mut stream, place).await? {
                peer.address = client;
                if !self.rules.is_proxy(client) && !place.is_of(network(client)) {
                    return None;
                }
            }
        }
        let Some(tls) = &self.tls else {
            return Some(Greeted { stream: Stream::Plain(stream), peer, seen: None });
        };
        let stream = tls.accept(stream, place).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let seen = match certificate {
            // The authority's, and still it may name nobody.
            Some(certificate) => Some(Arc::new(member::read(certificate).ok()?)),
            None => None,
        };
        Some(Greeted { stream: Stream::Tls(Box::new(stream)), peer, seen })
    }

    /// Answers requests: at first those that need no hyper, and then all with it.
    async fn converse(&self, mut greeted: Greeted, address: SocketAddr, place: &Arc<Place>) {
        let mut ending = Ending::new(place, self.stopped.clone());
        let first = self.first.as_ref().filter(|_| greeted.seen.is_none());
        let mut read = Vec::new();
        if let Some(first) = first {
            let mut polls = Polls::default();
            let handed = poll_fn(|context| {
                let now = Instant::now();
                if ending.must_stop(context) {
                    polls.stop();
                }
                let turn = polls.poll(context, &mut greeted.stream, place, (first, now));
                match turn {
                    Poll::Ready(Ended::Handed(bytes)) => Poll::Ready(Some(bytes)),
                    Poll::Ready(Ended::Gone) => Poll::Ready(None),
                    Poll::Pending if ending.is_late(context, place, now) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            });
            let Some(handed) = handed.await else { return };
            read = handed;
        }
        self.converse_by_hyper(greeted, address, (place, read), ending).await;
    }

    /// Answers requests with hyper, which begins with what was read before.
    async fn converse_by_hyper(
        &self,
        greeted: Greeted,
        address: SocketAddr,
        (place, read): (&Arc<Place>, Vec<u8>),
        mut ending: Ending,
    ) {
        let Greeted { stream, peer, seen } = greeted;
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(|mut request: Request<Incoming>| {
            let is_whole = request.body().is_end_stream();
            // It may have been revoked since the connection began, or since the last request.
            if seen.as_deref().is_some_and(|seen| !(self.admits)(seen)) {
                place.estranged();
            }
            place.asked(is_whole);
            let straight = self.straight.as_ref().filter(|_| is_whole);
            let straight = straight.and_then(|straight| straight(&mut request));
            let answer = straight.map(Answering::Straight).unwrap_or_else(|| {
                let mut request = request.map(|body| Body::new(Asked::new(body, place.clone())));
                let extensions = request.extensions_mut();
                extensions.insert(ConnectInfo(peer));
                extensions.insert(ConnectInfo(FleetPeer { address, seen: seen.clone() }));
                extensions.insert(place.clone());
                Answering::Routed(router.call(request))
            });
            async move {
                let answer = match answer {
                    Answering::Straight(answer) => answer.map(Written::whole),
                    Answering::Routed(answer) => answer.await?.map(Written::Routed),
                };
                Ok::<_, Infallible>(answer.map(|body| Answer::new(body, place.clone())))
            }
        });
        let mut http = http1::Builder::new();
        // Heads have their deadline in the place, with all others.
        http.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(BUFFER_MAX);
        // What was read begins before all stop: hyper closes where nothing was asked.
        let mut begins = !read.is_empty();
        let stream = TokioIo::new(Line::new(stream, read, place.clone()));
        let mut connection = pin!(http.serve_connection(stream, service));
        let mut is_stopping = false;
        poll_fn(|context| {
            let now = Instant::now();
            place.woken(now);
            if std::mem::take(&mut begins) && connection.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if !is_stopping && ending.must_stop(context) {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
            if connection.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            // Whatever moves the deadline happens in the lines above.
            if ending.is_late(context, place, now) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Whom a proxy speaks for, or itself; none if it does not say so in order and in time.
async fn header(stream: &mut TcpStream, place: &Place) -> Option<Option<IpAddr>> {
    let reason = match timeout_at(place.deadline(), proxy_protocol::read(stream)).await {
        Ok(Ok(client)) => return Some(client),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    place.house().counters.proxy_headers_refused.count();
    tracing::debug!(reason, "no PROXY header");
    None
}

impl Rules {
    /// Of the listener for operators and players.
    pub(crate) fn for_players(serve: &config::Serve) -> Self {
        Self {
            connections_max: serve.connections_max,
            per_address_max: serve.connections_per_address_max,
            proxies: serve.trusted_proxies.clone(),
            proxy_protocol: serve.proxy_protocol,
            is_for_members: false,
        }
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|prefix| prefix.contains(&address))
    }
}

/// An enrolment is two requests.
const STRANGER_MAX: Duration = Duration::from_secs(30);

/// Longest request head, and most that waits to be taken beside an answer's body: most is below a
/// kilobyte.
const BUFFER_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
