//! `nearcast origin`: serves a directory over HTTPS, for appliances to fill from.
//!
//! ```text
//! GET /film/r0.mp4 ─> tree (only below DIR) ─> conditions, range ─> 256 KiB reads ─> client
//!                                                                       ^ rate-max, for all
//! ```
//!
//! Any HTTPS server that honours Range does as well; this one is for those who have none at hand,
//! and for the demo. It reads through the page cache: an object passes here once per appliance.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum_server::tls_rustls::RustlsConfig;
use model::units::BitsPerSecond;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tracing::info;

use crate::output;
use crate::tree::Tree;

mod body;
mod respond;

pub(crate) use body::Pace;
pub(crate) use respond::Origin;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory to serve. Nothing outside it is, not even through links
    dir: PathBuf,
    /// Address to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:8444", value_name = "ADDR")]
    listen: SocketAddr,
    /// Certificate chain, PEM
    #[arg(long, value_name = "FILE")]
    certificate: PathBuf,
    /// Private key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Most that leaves, over all connections, for example "200 Mb/s"
    #[arg(long, value_name = "RATE")]
    rate_max: Option<BitsPerSecond>,
    /// Print the address listened on as one JSON object
    #[arg(long)]
    json: bool,
}

/// Serves until SIGINT or SIGTERM, then lets running answers end within [`STOP_WITHIN`].
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let tree = Tree::open(&args.dir)?;
    let config = tls_config(&args.certificate, &args.key)?;
    let listener = listen(args.listen)?;
    let addr = listener.local_addr().context("the listening socket has no address")?;
    info!(dir = %tree.path().display(), url = %format_args!("https://{addr}/"), "origin serves");
    if args.json {
        output::json(&serde_json::json!({ "listen": addr.to_string() }))?;
    }
    let origin = Origin::new(tree, args.rate_max.map(Pace::new));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let handle = axum_server::Handle::new();
        let stopper = handle.clone();
        tokio::spawn(async move {
            output::stop_signal().await;
            info!("origin stops");
            stopper.graceful_shutdown(Some(STOP_WITHIN));
        });
        serve(listener, config, origin, handle).await
    })
}

/// Serves `origin` on `listener` until `handle` says otherwise.
pub(crate) async fn serve(
    listener: TcpListener,
    config: Arc<rustls::ServerConfig>,
    origin: Origin,
    handle: axum_server::Handle<SocketAddr>,
) -> anyhow::Result<()> {
    let router = Router::new().fallback(respond::respond).with_state(Arc::new(origin));
    axum_server::from_tcp_rustls(listener, RustlsConfig::from_config(config))?
        .handle(handle)
        .serve(router.into_make_service())
        .await
        .context("the origin's server ended")
}

/// Binds `addr` for a server of tokio's.
pub(crate) fn listen(addr: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(addr)
        .with_context(|| format!("cannot listen on {addr}: is another program using it?"))?;
    listener.set_nonblocking(true).context("cannot make the listener non-blocking")?;
    Ok(listener)
}

/// TLS from a PEM chain and key. HTTP/1.1 only: fill uses few connections and long ranges.
pub(crate) fn tls_config(
    certificate: &std::path::Path,
    key: &std::path::Path,
) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .with_context(|| format!("cannot read a certificate from {}", certificate.display()))?;
    anyhow::ensure!(!chain.is_empty(), "{} holds no certificate (PEM)", certificate.display());
    let key_der = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read a private key from {}", key.display()))?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .with_context(|| {
            format!("{} is not the key of {}", key.display(), certificate.display())
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// How long running answers may go on after a stop signal. A fill resumes by range.
const STOP_WITHIN: Duration = Duration::from_secs(5);
