//! The control plane's HTTP API, as far as the operator's hand needs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::tls::{PemItem, RootCerts, TlsConfig};

/// The control plane's address and a token for it: the same options for every verb.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Where {
    /// Base URL of the control plane
    #[arg(long, value_name = "URL", env = "NEARCAST_CONTROL", default_value = DEFAULT_URL)]
    control: String,
    /// File with an API token; or set NEARCAST_TOKEN to the token itself
    #[arg(long, value_name = "FILE", env = "NEARCAST_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Authority to believe instead of the system's, in PEM: for a private certificate
    #[arg(long, value_name = "FILE", env = "NEARCAST_CA")]
    ca: Option<PathBuf>,
}

/// Where control is, and the form in which its answer is printed.
#[derive(Debug, clap::Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) control: Where,
    /// Print what control says as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Control {
    base: String,
    agent: ureq::Agent,
    /// `Bearer {token}`.
    authorization: Option<String>,
}

impl Where {
    pub(crate) fn client(&self) -> anyhow::Result<Control> {
        let variable = std::env::var("NEARCAST_TOKEN").ok();
        let token = token(self.token_file.as_deref(), variable)?;
        Control::with(&self.control, token, self.ca.as_deref())
    }
}

/// The token in the file, else in the variable; none if there is neither.
fn token(file: Option<&Path>, variable: Option<String>) -> anyhow::Result<Option<String>> {
    let (text, place) = match file {
        Some(path) => {
            let shown = format!("--token-file {}", path.display());
            (Some(read_secret(path).with_context(|| shown.clone())?), shown)
        }
        None => (variable, "NEARCAST_TOKEN".to_owned()),
    };
    let Some(token) = text.map(|text| text.trim().to_owned()) else { return Ok(None) };
    let good =
        token.starts_with("nc_") && token.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    ensure!(good, "{place}: this is not an API token; one begins with nc_");
    Ok(Some(token))
}

/// A file that nobody else can read.
fn read_secret(path: &Path) -> anyhow::Result<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path)?.permissions().mode() & 0o777;
    ensure!(mode & 0o077 == 0, "others can read it (mode {mode:o}): chmod 600 it");
    Ok(std::fs::read_to_string(path)?)
}

impl Control {
    /// A client of the control plane at `base`, with this token.
    pub(crate) fn new(base: &str, token: &str) -> anyhow::Result<Self> {
        Self::with(base, Some(token.to_owned()), None)
    }

    fn with(base: &str, token: Option<String>, ca: Option<&Path>) -> anyhow::Result<Self> {
        let known = base.starts_with("http://") || base.starts_with("https://");
        ensure!(
            known,
            "\"{base}\" is not a URL of a control plane: write for example {DEFAULT_URL}"
        );
        ensure!(
            token.is_none() || is_private(base),
            "{base} is not encrypted, and the token would be seen on the way: use https://"
        );
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .max_redirects(0)
            .user_agent(concat!("nearcast/", env!("CARGO_PKG_VERSION")));
        if base.starts_with("https://") {
            config = config.tls_config(TlsConfig::builder().root_certs(roots(ca)?).build());
        }
        let authorization = token.map(|token| format!("Bearer {token}"));
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { base, agent: config.build().into(), authorization })
    }

    /// Its URL, without a slash at the end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.base);
        let response = self.signed(self.agent.get(&url)).call();
        read(&mut self.checked(response, &url)?, &url)
    }

    /// As `get`, for who can wait: the inner error says that control does not answer now, as while
    /// it is started anew.
    pub(crate) fn look<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<Result<T, String>> {
        let url = format!("{}{path}", self.base);
        let mut response = match self.send("GET", &url, None) {
            Err(error) => return Ok(Err(error.to_string())),
            Ok(response) if response.status().is_server_error() => {
                return Ok(Err(response.status().to_string()));
            }
            Ok(response) => self.checked(Ok(response), &url)?,
        };
        match response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_string() {
            Err(error) => Ok(Err(error.to_string())),
            Ok(text) => serde_json::from_str(&text).map(Ok).with_context(|| {
                format!("{url} did not answer as expected: is it a control plane of this version?")
            }),
        }
    }

    /// The bytes at a path.
    pub(crate) fn bytes(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let url = format!("{}{path}", self.base);
        let mut response = self.checked(self.send("GET", &url, None), &url)?;
        Ok(response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec()?)
    }

    /// Any request, and its answer: JSON, or else a text; nothing if there is none.
    pub(crate) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.base);
        let mut response = self.checked(self.send(method, &url, body), &url)?;
        let text = response.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_string()?;
        Ok(match text.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
        })
    }

    /// What is at this path, if anything is.
    pub(crate) fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let url = format!("{}{path}", self.base);
        let response = self.send("GET", &url, None);
        if response.as_ref().is_ok_and(|response| response.status().as_u16() == 404) {
            return Ok(None);
        }
        read(&mut self.checked(response, &url)?, &url).map(Some)
    }

    fn send(&self, method: &str, url: &str, body: Option<&Value>) -> Result<Response, ureq::Error> {
        let request = ureq::http::Request::builder().method(method).uri(url);
        let request = match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        match body {
            None => self.agent.run(request.body(())?),
            Some(body) => {
                let request = request.header("content-type", "application/json");
                self.agent.run(request.body(body.to_string())?)
            }
        }
    }

    /// PUTs a JSON value: true if it is new there.
    pub(crate) fn put(&self, path: &str, value: &impl Serialize) -> anyhow::Result<bool> {
        let url = format!("{}{path}", self.base);
        let response = self.signed(self.agent.put(&url)).send_json(value);
        Ok(self.checked(response, &url)?.status() == 201)
    }

    /// POSTs a JSON value and reads one.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.base);
        let response = self.signed(self.agent.post(&url)).send_json(value);
        read(&mut self.checked(response, &url)?, &url)
    }

    /// DELETEs something that is there.
    pub(crate) fn delete(&self, path: &str) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.base);
        let response = self.signed(self.agent.delete(&url)).call();
        self.checked(response, &url).map(|_| ())
    }

    /// DELETEs something that is there, and reads the answer.
    pub(crate) fn delete_for<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.base);
        read(&mut self.checked(self.send("DELETE", &url, None), &url)?, &url)
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    }

    fn checked(
        &self,
        response: Result<Response, ureq::Error>,
        url: &str,
    ) -> anyhow::Result<Response> {
        let mut response = response.map_err(|error| {
            anyhow::anyhow!(
                "the control plane at {} does not answer ({error}): start it with \
                 `nearcast-control serve`, or say where it is with --control URL or \
                 NEARCAST_CONTROL",
                self.base
            )
        })?;
        check(&mut response, url, self.authorization.is_some())?;
        Ok(response)
    }
}

type Response = ureq::http::Response<ureq::Body>;

fn read<T: DeserializeOwned>(response: &mut Response, url: &str) -> anyhow::Result<T> {
    let body = response.body_mut().with_config().limit(ANSWER_LEN_MAX);
    body.read_json().with_context(|| {
        format!("{url} did not answer as expected: is it a control plane of this version?")
    })
}

/// A name or an id as a part of a path.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// True if nobody on the way can read requests to this URL: encrypted, or on this machine.
pub(crate) fn is_private(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return url.starts_with("https://") };
    let authority = rest.split('/').next().unwrap_or("");
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    let name = name.unwrap_or("");
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The trusted authorities: the given one, else the system's.
fn roots(ca: Option<&Path>) -> anyhow::Result<RootCerts> {
    let path = match ca {
        Some(path) => path,
        None => SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.is_file()).context(
            "this system has no list of authorities: say whom to believe with --ca FILE",
        )?,
    };
    let pem = std::fs::read(path).with_context(|| format!("--ca {}", path.display()))?;
    let items = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = items.collect();
    ensure!(!certificates.is_empty(), "--ca {}: there is no certificate in it", path.display());
    Ok(RootCerts::from(certificates))
}

/// An answer that is no success becomes an error with control's own words (RFC 9457).
fn check(response: &mut Response, url: &str, has_token: bool) -> anyhow::Result<()> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text = response.body_mut().with_config().limit(PROBLEM_LEN_MAX).read_to_string();
    let text = text.unwrap_or_default();
    let problem: Problem = serde_json::from_str(&text).unwrap_or_default();
    let said = match (&*problem.title, &*problem.detail) {
        ("", "") => text.lines().next().unwrap_or_default().to_owned(),
        (title, "") => title.to_owned(),
        ("", detail) => detail.to_owned(),
        (title, detail) => format!("{title}: {detail}"),
    };
    let said = if said.is_empty() { "no reason given".to_owned() } else { said };
    match status.as_u16() {
        401 if has_token => bail!(
            "control does not know this API token: was it removed, or is it another control \
             plane's? `nearcast token make`, with a token of role admin, makes another [{url}]"
        ),
        401 => bail!(
            "control wants an API token: say --token-file FILE, or set NEARCAST_TOKEN; where \
             control runs, `nearcast-control token --config FILE --role admin --name NAME` makes \
             one [{url}]"
        ),
        403 => bail!("control does not allow that: {said} [{url}]"),
        status => bail!("control refused ({status}): {said} [{url}]"),
    }
}

#[derive(Debug, Default, Deserialize)]
struct Problem {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Where systems keep the authorities that they believe.
const SYSTEM_ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Loopback or a management network: a second is long.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Control proves every block hash of a new version before it answers, and a version may have
/// millions.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// Largest answer: 1,000 appliances with 64 drives each come to about 20 MB.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// More of a refusal is not read.
const PROBLEM_LEN_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_sent_where_it_could_be_seen() {
        let ask = |base: &str| Control::with(base, Some("nc_1_2".to_owned()), None).map(|_| ());
        for base in ["http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080/"] {
            ask(base).unwrap();
        }
        for base in
            ["http://control.example", "http://10.0.0.1:8080", "http://127.0.0.1.evil.example"]
        {
            let refused = ask(base).unwrap_err().to_string();
            assert!(refused.contains("use https://"), "{refused}");
        }
        Control::with("http://10.0.0.1:8080", None, None).unwrap();
    }

    #[test]
    fn a_token_comes_from_a_file_of_ones_own_or_from_the_environment() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "nc_1_2\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o644);
        let refused = format!("{:#}", token(Some(&file), None).unwrap_err());
        assert!(refused.contains("chmod 600"), "{refused}");
        mode(0o600);
        assert_eq!(token(Some(&file), Some("x".into())).unwrap().as_deref(), Some("nc_1_2"));
        assert_eq!(token(None, Some(" nc_3_4\n".into())).unwrap().as_deref(), Some("nc_3_4"));
        assert_eq!(token(None, None).unwrap(), None);
        for bad in ["x", "nc_1\r\nhost: x", "Bearer nc_1_2"] {
            assert!(token(None, Some(bad.into())).is_err(), "{bad}");
        }
    }
}
