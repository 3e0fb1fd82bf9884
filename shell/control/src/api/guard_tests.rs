use super::*;
use std::fmt::Write as _;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use director::front::Ticket;
use director::{Change, Event};
use model::units::UnixSeconds;

use crate::members::access::Token;
use crate::state::writer::tests::open;
use crate::state::writer::withdrawals::tests::version;

/// A control plane that listens, with tokens.
struct Running {
    address: SocketAddr,
    control: Arc<Control>,
    serving: tokio::task::JoinHandle<anyhow::Result<()>>,
    _state: tempfile::TempDir,
}

#[tokio::test]
async fn every_route_lets_in_the_roles_that_it_should() {
    let roles = [None, Some(Role::Service), Some(Role::Viewer), Some(Role::Operator)];
    let roles: Vec<_> = roles.into_iter().chain([Some(Role::Admin)]).collect();
    let mut table = String::new();
    for role in &roles {
        write!(table, "{:<9}", role.map_or("nobody".to_owned(), |role| role.to_string())).unwrap();
    }
    let mut rows: Vec<String> = vec![String::new(); crate::api::routes().len()];
    for role in roles {
        let mut running = Running::start("").await;
        let mut token = running.token(role).await;
        for (at, (row, route)) in rows.iter_mut().zip(crate::api::routes()).enumerate() {
            // What is refused counts as an attempt, and an address has twenty.
            if at % 15 == 14 {
                running = Running::start("").await;
                token = running.token(role).await;
            }
            let answer = running.ask(route.method, route.path, token.as_ref(), "").await;
            let status = answer.split(' ').nth(1).unwrap();
            let word = match status {
                "401" if answer.contains("www-authenticate: Grant realm=") => "grant",
                "401" | "403" => {
                    let is_good = answer.contains("content-type: application/problem+json")
                        && answer.contains("www-authenticate: Bearer realm=");
                    assert!(is_good, "{} {}: {answer}", route.method, route.path);
                    status
                }
                "303" => "login",
                "429" => panic!("{} {}: too many attempts: {answer}", route.method, route.path),
                _ => "in",
            };
            write!(row, "{word:<9}").unwrap();
        }
    }
    for (row, route) in rows.iter().zip(crate::api::routes()) {
        write!(table, "\n{row}{} {}", route.method, route.path).unwrap();
    }
    insta::assert_snapshot!(table);
}

#[tokio::test]
async fn without_a_token_this_machine_is_admin_until_there_is_one() {
    let running = Running::bare("[serve]\npublic_url = \"https://c.example\"").await;
    assert_eq!(running.status("GET", "/v1/audit", None, "").await, 200);
    let by_proxy = running.raw("GET /v1/audit HTTP/1.1\r\nHost: c.example\r\n").await;
    assert!(by_proxy.starts_with("HTTP/1.1 401 "), "a proxy lets others in: {by_proxy}");
    // As the command line does it, beside the running process.
    let store = &running.control.store;
    let token = crate::state::issue::issue_by_hand(store, "me", Role::Admin).await.unwrap();
    running.control.refresh_access().await;
    assert_eq!(running.status("GET", "/v1/audit", None, "").await, 401);
    assert_eq!(running.status("GET", "/healthz", None, "").await, 200);
    assert_eq!(running.status("GET", "/v1/audit", Some(&token), "").await, 200);
}

#[tokio::test]
async fn a_request_that_somebody_passed_on_is_no_local_administrators() {
    let running = Running::bare("").await;
    assert_eq!(running.status("GET", "/v1/audit", None, "").await, 200);
    for line in [
        "Forwarded: for=127.0.0.1",
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Host: localhost",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
    ] {
        let answer = running.head("GET", "/v1/audit", &format!("{line}\r\n"), "").await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{line}: {answer}");
    }
    let address = running.address;
    let old = running.raw(&format!("GET /v1/audit HTTP/1.0\r\nHost: {address}\r\n")).await;
    assert!(old.contains(" 401 "), "as nginx asks: {old}");
    let trusted = Running::bare("[serve]\ntrusted_proxies = [\"127.0.0.1\"]").await;
    let answer = trusted.ask("GET", "/v1/audit", None, "").await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[tokio::test]
async fn a_trusted_proxys_client_is_in_the_log_and_its_attempts_are_its_own() {
    let running = Running::start("[serve]\ntrusted_proxies = [\"127.0.0.0/8\"]").await;
    let client = |address: &str| format!("X-Forwarded-For: 6.6.6.6, {address}\r\n");
    let body = "{\"prefixes\":[]}";
    let put = async |extra: &str| running.head("PUT", "/v1/sites/s1", extra, body).await;
    let refused = put(&client("198.51.100.7")).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let lines = running.control.store.audit(i64::MAX, 1).await.unwrap();
    assert_eq!(lines[0].1.peer.as_deref(), Some("198.51.100.7"));
    let wrong = format!("Authorization: Bearer {}\r\n", Token::random().text());
    let attempt = async |address: &str| put(&format!("{}{wrong}", client(address))).await;
    for _ in 0..25 {
        attempt("198.51.100.7").await;
    }
    assert!(attempt("198.51.100.7").await.starts_with("HTTP/1.1 429 "));
    assert!(attempt("198.51.100.8").await.starts_with("HTTP/1.1 401 "));
    let malformed = put("X-Forwarded-For: nobody\r\n").await;
    assert!(malformed.starts_with("HTTP/1.1 400 ") && malformed.contains("problem:forwarded"));
    assert_eq!(running.control.metrics.forwarded_refused.value(), 1);
}

#[tokio::test]
async fn who_has_a_token_may_speak_for_another_address_and_nobody_else() {
    let running = Running::start("").await;
    let explain = "/v1/explain?asset=none&client=10.1.2.3";
    let (begin, wish) = ("/v1/playbacks", "{\"asset\":\"none\",\"client\":\"10.1.2.3\"}");
    // There is no such asset: who may name a client hears that.
    for role in [Role::Service, Role::Viewer, Role::Operator, Role::Admin] {
        let token = running.token(Some(role)).await;
        assert_eq!(running.status("POST", begin, token.as_ref(), wish).await, 404, "{role}");
        let status = running.status("GET", explain, token.as_ref(), "").await;
        assert_eq!(status, if role == Role::Service { 403 } else { 404 }, "{role}");
        let far = "Via: 1.1 somebody\r\n";
        let bearer = format!("{far}Authorization: Bearer {}\r\n", token.unwrap().text());
        let answer = running.head("POST", begin, &bearer, wish).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{role}: {answer}");
    }
    assert_eq!(running.status("POST", begin, None, wish).await, 401);
    let open = Running::bare("").await;
    assert_eq!(open.status("POST", begin, None, wish).await, 404, "this machine, all is open");
    let passed_on = open.head("POST", begin, "X-Forwarded-For: 127.0.0.1\r\n", wish).await;
    assert!(passed_on.starts_with("HTTP/1.1 401 "), "{passed_on}");
    // Anybody may play what is public, and with a token alone say for whom.
    open.control.handle(Event::Changed(Change::Version(Arc::new(version(1, &[]))))).await;
    open.control.declare("film".parse().unwrap(), true).await.unwrap();
    let play = "/v1/play/film.m3u8?client=10.1.2.3";
    assert_eq!(open.status("GET", play, None, "").await, 503, "this machine, all is open");
    let passed_on = open.head("GET", play, "X-Forwarded-For: 127.0.0.1\r\n", "").await;
    assert!(passed_on.starts_with("HTTP/1.1 403 "), "{passed_on}");
}

#[tokio::test]
async fn a_body_that_does_not_come_takes_nobodys_turn_and_has_an_end() {
    let running = Running::start("[serve]\nrequests_max = 1").await;
    let mut held = Vec::new();
    for head in ["Content-Length: 100", "Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let kind = "Content-Type: application/json";
        let head = format!("POST /v1/session HTTP/1.1\r\nHost: c\r\n{kind}\r\n{head}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        held.push(stream);
        assert_eq!(running.status("GET", "/healthz", None, "").await, 200);
    }
    let mut answer = String::new();
    held[0].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(0 < running.control.metrics.bodies_timed_out.value());
}

#[tokio::test]
async fn events_that_drip_stop_nobodys() {
    let running = Running::start("[serve]\nrequests_max = 4").await;
    let ticket = Ticket {
        session: running.control.keys().session(),
        expires: UnixSeconds(running.control.clock.unix().0 + 1000),
        version: "film-1".parse().unwrap(),
        client: "10.0.0.0/8".parse().unwrap(),
        plain: false,
        pathways: vec!["a1".parse().unwrap()],
        parts: std::collections::BTreeMap::new(),
    };
    let good = format!("/events/v1/{}", running.control.keys().seal(&ticket));
    let drip = async |path: &str| {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: c\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsta=p"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    // Without a ticket the rest is not awaited.
    let mut stranger = drip("/events/v1/x").await;
    let mut answer = String::new();
    stranger.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert_eq!(running.control.metrics.bodies_timed_out.value(), 0);
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(drip(&good).await);
    }
    assert_eq!(running.status("POST", &good, None, "e=ps,sta=s,ts=1").await, 204);
    assert_eq!(running.status("GET", "/healthz", None, "").await, 200);
    answer.clear();
    held[0].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(0 < running.control.metrics.bodies_timed_out.value());
}

#[tokio::test]
async fn wrong_tokens_are_refused_a_few_times_and_good_ones_always_get_in() {
    let running = Running::start("").await;
    let good = running.token(Some(Role::Viewer)).await.unwrap();
    let wrong = Token::random();
    let mut statuses = Vec::new();
    for _ in 0..30 {
        statuses.push(running.status("GET", "/v1/fleet", Some(&wrong), "").await);
    }
    assert_eq!((statuses[0], statuses[19], statuses[20], statuses[29]), (401, 401, 429, 429));
    let answer = running.ask("GET", "/v1/fleet", Some(&wrong), "").await;
    assert!(answer.contains("retry-after: 6") && answer.contains("invalid_token"), "{answer}");
    assert_eq!(running.status("GET", "/v1/fleet", Some(&good), "").await, 200);
    assert_eq!(running.status("GET", "/v1/fleet", None, "").await, 401);
    assert_eq!(running.control.metrics.requests_refused.value(), 32);
}

#[tokio::test]
async fn a_change_stands_in_the_log_with_who_made_it_and_so_does_one_that_was_refused() {
    let running = Running::start("").await;
    let operator = running.token(Some(Role::Operator)).await.unwrap();
    let viewer = running.token(Some(Role::Viewer)).await.unwrap();
    let body = "{\"prefixes\":[\"10.0.0.0/8\"]}";
    assert_eq!(running.send("PUT", "/v1/sites/s1", Some(&operator), body).await, 200);
    assert_eq!(running.send("PUT", "/v1/sites/S!", Some(&operator), body).await, 400);
    assert_eq!(running.send("PUT", "/v1/sites/s2", Some(&viewer), body).await, 403);
    assert_eq!(running.send("PUT", "/v1/sites/s3", None, body).await, 401);
    assert_eq!(running.send("GET", "/v1/sites", Some(&viewer), "").await, 200);
    let lines = running.control.store.audit(i64::MAX, 4).await.unwrap();
    let shown: Vec<String> = lines
        .iter()
        .rev()
        .map(|(_, line)| {
            let AuditEntry { name, role, peer, method, target, outcome, summary, .. } = line;
            let who = format!(
                "{} ({role:?}) {}",
                name.as_deref().unwrap_or("nobody"),
                peer.as_deref().unwrap()
            );
            format!("{who}: {method} {target}: {} {summary}", outcome.unwrap())
        })
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
    assert_eq!(lines[3].1.token.as_deref(), Some(operator.id()));
    for (_, line) in lines {
        let text = format!("{line:?}");
        assert!(!text.contains(&operator.text()[16..]), "no secret: {text}");
    }
}

#[tokio::test]
async fn who_is_refused_may_go_on_with_the_same_connection() {
    let running = Running::start("").await;
    let body = format!("{{\"prefixes\":[\"{}\"]}}", "x".repeat(50_000));
    let head = |method: &str, path: &str, len: usize| {
        let host = running.address;
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\n")
    };
    let first = head("PUT", "/v1/sites/s1", body.len());
    let second = head("GET", "/healthz", 0);
    let request = format!("{first}\r\n{body}{second}Connection: close\r\n\r\n");
    let answers = running.raw(&request).await;
    assert!(answers.starts_with("HTTP/1.1 401 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 200 OK"), "{answers}");
}

#[tokio::test]
async fn nothing_is_changed_when_the_log_cannot_be_written() {
    let running = Running::start("").await;
    let token = running.token(Some(Role::Admin)).await.unwrap();
    running.control.store.hide_audit().await;
    let body = "{\"prefixes\":[]}";
    assert_eq!(running.send("PUT", "/v1/sites/s1", Some(&token), body).await, 500);
    assert!(running.control.snapshot().sites.is_empty());
}

#[tokio::test]
async fn a_browser_logs_in_and_is_not_used_by_other_sites() {
    let running = Running::start("").await;
    let token = running.token(Some(Role::Operator)).await.unwrap();
    let own = format!("Origin: http://{}\r\n", running.address);
    let wrong = running.log_in(&Token::random().text(), &own).await;
    assert!(wrong.starts_with("HTTP/1.1 401 ") && !wrong.contains("set-cookie"), "{wrong}");
    let foreign = running.log_in(&token.text(), "Origin: http://evil.example\r\n").await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
    let answer = running.log_in(&token.text(), &own).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let line = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(!line.contains(&token.text()[16..]), "the cookie is not the token");
    let cookie = format!("Cookie: a=b; {}\r\n", line.split(';').next().unwrap());

    let who = running.head("GET", "/v1/session", &cookie, "").await;
    assert!(who.contains("\"role\":\"operator\"") && who.contains("\"open\":false"), "{who}");
    let put = "/v1/sites/s1";
    let body = "{\"prefixes\":[]}";
    for (origin, status) in [
        (own.clone(), "200"),
        (String::new(), "403"),
        ("Origin: null\r\n".to_owned(), "403"),
        ("Origin: http://evil.example\r\n".to_owned(), "403"),
    ] {
        let answer = running.head("PUT", put, &format!("{cookie}{origin}"), body).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{origin}: {answer}");
    }
    for origin in ["", "Origin: http://evil.example\r\n"] {
        let out = running.head("DELETE", "/v1/session", &format!("{cookie}{origin}"), "").await;
        assert!(out.starts_with("HTTP/1.1 403 "), "{origin}: {out}");
    }
    let out = running.head("DELETE", "/v1/session", &format!("{cookie}{own}"), "").await;
    assert!(out.starts_with("HTTP/1.1 204 ") && out.contains("Max-Age=0"), "{out}");
    let after = running.head("GET", "/v1/session", &cookie, "").await;
    assert!(after.starts_with("HTTP/1.1 401 "), "{after}");
    let page = running.head("GET", "/play?asset=film", "", "").await;
    assert!(page.contains("location: /login#/play?asset=film"), "{page}");
}

#[tokio::test]
async fn logins_that_cannot_be_read_are_attempts_and_write_few_lines() {
    let running = Running::start("").await;
    let good = running.token(Some(Role::Viewer)).await.unwrap();
    let before = running.control.store.audit(i64::MAX, 1000).await.unwrap().len();
    // No JSON, no such field, and no type that says so.
    let broken = ["{", "{\"x\":1}"];
    let mut statuses = Vec::new();
    for i in 0..28 {
        statuses.push(running.send("POST", "/v1/session", None, broken[i % 2]).await);
    }
    assert_eq!(statuses[..2], [400, 422]);
    assert!(statuses[..20].iter().all(|status| *status != 429), "{statuses:?}");
    assert!(statuses[20..].iter().all(|status| *status == 429), "{statuses:?}");
    let host = running.address;
    let untyped = format!("POST /v1/session HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n");
    let untyped = running.raw(&untyped).await;
    assert!(untyped.starts_with("HTTP/1.1 429 "), "would be 415: {untyped}");
    let lines = running.control.store.audit(i64::MAX, 1000).await.unwrap();
    assert_eq!(lines.len() - before, 20);
    let answer = running.log_in(&good.text(), "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "a good token gets in: {answer}");
}

#[tokio::test]
async fn where_all_is_open_other_sites_may_not_change_anything() {
    let running = Running::bare("").await;
    let body = "{\"prefixes\":[]}";
    let foreign = "Origin: http://evil.example\r\n";
    let answer = running.head("PUT", "/v1/sites/s1", foreign, body).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let answer = running.head("PUT", "/v1/sites/s1", "", body).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn tokens_are_made_listed_and_removed_but_for_the_last_admin() {
    let running = Running::bare("").await;
    let make = |name: &str, role: &str| format!("{{\"name\":\"{name}\",\"role\":\"{role}\"}}");
    let first = running.send("POST", "/v1/tokens", None, &make("page", "viewer")).await;
    assert_eq!(first, 409, "an admin comes first");
    let answer = running.head("POST", "/v1/tokens", "", &make("ops", "admin")).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("no-store"), "{answer}");
    let text = answer.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap();
    let admin: Token = text.parse().unwrap();
    assert_eq!(running.send("POST", "/v1/tokens", Some(&admin), &make("b", "root")).await, 422);
    let service = make("web", "service");
    assert_eq!(running.send("POST", "/v1/tokens", Some(&admin), &service).await, 201);
    let list = running.ask("GET", "/v1/tokens", Some(&admin), "").await;
    assert!(list.contains("\"web\"") && !list.contains(&admin.text()[16..]), "{list}");
    let path = format!("/v1/tokens/{}", admin.id());
    assert_eq!(running.send("DELETE", &path, Some(&admin), "").await, 409, "the last admin");
    let other = running.token(Some(Role::Admin)).await.unwrap();
    assert_eq!(running.send("DELETE", &path, Some(&other), "").await, 204);
    assert_eq!(running.send("DELETE", &path, Some(&other), "").await, 404);
    assert_eq!(running.send("GET", "/v1/tokens", Some(&admin), "").await, 401, "at once");
}

impl Running {
    /// With one admin, so that nothing is open.
    async fn start(settings: &str) -> Self {
        let running = Self::bare(settings).await;
        running.token(Some(Role::Admin)).await;
        running
    }

    async fn bare(settings: &str) -> Self {
        let (state, control) = open(settings).await;
        let (address, listeners) = crate::serve::tests::listeners().await;
        let serving = crate::serve::serve(control.clone(), listeners, std::future::pending());
        Self { address, control, serving: tokio::spawn(serving), _state: state }
    }

    async fn token(&self, role: Option<Role>) -> Option<Token> {
        let role = role?;
        Some(self.control.make_token(&role.to_string(), role).await.unwrap().0)
    }

    async fn status(&self, method: &str, path: &str, token: Option<&Token>, body: &str) -> u16 {
        let answer = self.ask(method, path, token, body).await;
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    async fn send(&self, method: &str, path: &str, token: Option<&Token>, body: &str) -> u16 {
        self.status(method, path, token, body).await
    }

    async fn ask(&self, method: &str, path: &str, token: Option<&Token>, body: &str) -> String {
        let extra = token.map(|token| format!("Authorization: bearer {}\r\n", token.text()));
        self.head(method, path, &extra.unwrap_or_default(), body).await
    }

    async fn log_in(&self, token: &str, extra: &str) -> String {
        self.head("POST", "/v1/session", extra, &format!("{{\"token\":\"{token}\"}}")).await
    }

    async fn head(&self, method: &str, path: &str, extra: &str, body: &str) -> String {
        let path = path.replace("{file}", "file.m3u8").replace(['{', '}', '*'], "");
        let (address, len) = (self.address, body.len());
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
             Content-Length: {len}\r\n{extra}Connection: close\r\n\r\n{body}"
        ))
        .await
    }

    async fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        if !request.contains("\r\n\r\n") {
            stream.write_all(b"Connection: close\r\n\r\n").await.unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
