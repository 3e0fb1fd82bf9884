//! One process of the control plane, as an appliance speaks to it: requests and their answers.

use std::time::Duration;

use identity::enrol::{self, Address};
use identity::member::Member;
use model::id::{ApplianceId, DocumentId, Generation, ObjectId, parse_hex};
use model::object::{BlocksError, block_count};
use model::units::{Bytes, Nanos, UnixSeconds};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use settings::Text;
use tls::TicketKey;
use wire::v1;
use wire::v1::demand::{DemandPart, DemandTaken};
use wire::v1::expected::Expected;
use wire::v1::manifest::{LACKING_MAX, Lacking};
use wire::v1::report::{Report, ReportReply};
use wire::v1::routes::{Part, PartTaken};

use crate::membership::envelope::Refused;
use crate::membership::member::MemberClient;

/// No answer of control is longer. A manifest of a million files is about 200 MB.
const MANIFEST_LEN_MAX: u64 = 1 << 30;
/// What is expected is told in no more: 16,384 numbers, scattered as far as they may be, and the
/// names of 1,024 versions are 400 KB.
const EXPECTED_LEN_MAX: u64 = 1 << 20;
/// Longest of the other answers, of which sources of an object are some KiB.
const JSON_LEN_MAX: u64 = 10 << 20;
/// Longest time for one conversation. A report is small.
const REPORT_MAX: Duration = Duration::from_secs(5);
/// The same of a manifest or its documents: 200 MB at 2 Mb/s take 800 s.
const MANIFEST_MAX: Duration = Duration::from_secs(15 * 60);
/// The same of the hashes of an object's blocks, of which 100 GB have 12 MB.
const BLOCKS_MAX: Duration = Duration::from_secs(2 * 60);
/// The same of an hour's demand, which is on a drive when it is answered.
const DEMAND_MAX: Duration = Duration::from_secs(60);

/// Why a conversation with control failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("control cannot be reached: {0}")]
    Unreachable(String),
    /// It is there, or its machine is away.
    #[error("control does not answer in time: {0}")]
    Late(String),
    #[error("control answers {status}: {text}")]
    Status {
        status: u16,
        /// The beginning of the body.
        text: String,
    },
    #[error("control's answer is not understood: {0}")]
    Body(String),
    #[error("control's manifest is refused: {0}")]
    Manifest(#[from] Refused),
    #[error("control's trust document is refused: {0}")]
    Trust(Refused),
    #[error(
        "control has none of {0} documents that its manifest names: it is asked for a newer one"
    )]
    NoDocuments(usize),
    /// Its block hashes are not the object's.
    #[error(transparent)]
    Blocks(#[from] BlocksError),
}

/// A front of the control plane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Front {
    /// Its name, as its certificate says it.
    pub name: String,
    pub url: Text<Address>,
}

/// Talks to one process of the control plane. Each thread has its own.
pub(crate) struct ControlClient {
    client: MemberClient,
    /// Whom it speaks to, for the log.
    pub(crate) whom: String,
    base: String,
    pub(crate) appliance: ApplianceId,
}

impl ControlClient {
    /// For the writer.
    pub(crate) fn writer(client: MemberClient, at: &Address, appliance: &ApplianceId) -> Self {
        client.dial.set(&Member::control(), at.as_str());
        let (whom, base) = ("the writer".to_owned(), enrol::control_url(at));
        Self { client, whom, base, appliance: appliance.clone() }
    }

    /// For the front of this name.
    pub(crate) fn front(client: MemberClient, at: &Front, appliance: &ApplianceId) -> Self {
        let front = Member::front(&at.name);
        client.dial.set(&front, at.url.0.as_str());
        // The port stands in `Host` only: where to connect to is what was said above.
        let base = enrol::control_url(&at.url.0).replace(&Member::control().host(), &front.host());
        Self { client, whom: at.name.clone(), base, appliance: appliance.clone() }
    }

    pub(crate) fn report(&self, report: &Report) -> Result<ReportReply, ControlError> {
        json(self.post("report", REPORT_MAX, report)?)
    }

    /// A part of what routers announce.
    pub(crate) fn routes(&self, part: &Part) -> Result<PartTaken, ControlError> {
        json(self.post("routes", REPORT_MAX, part)?)
    }

    /// What viewers were sent in an hour.
    pub(crate) fn demand(&self, part: &DemandPart) -> Result<DemandTaken, ControlError> {
        json(self.post("demand", DEMAND_MAX, part)?)
    }

    /// The envelope of a manifest newer than `known`, if there is one. Nothing in it is believed.
    pub(crate) fn manifest(&self, known: Generation) -> Result<Option<Vec<u8>>, ControlError> {
        let url = self.url(&format!("manifest?known={known}&short=true&trust=true"));
        bytes_or_nothing(self.get(&url, MANIFEST_MAX)?, MANIFEST_LEN_MAX)
    }

    /// The envelope of a trust document newer than `known`, if there is one. Nothing in it is
    /// believed.
    pub(crate) fn trust(&self, known: Generation) -> Result<Option<Vec<u8>>, ControlError> {
        let url = self.url(&format!("trust?known={known}"));
        bytes_or_nothing(self.get(&url, REPORT_MAX)?, MANIFEST_LEN_MAX)
    }

    /// The items of which viewers are expected to be sent most, those that take so many bytes, if
    /// the list is not of the state `known`.
    pub(crate) fn expected(
        &self,
        room: Bytes,
        known: u64,
    ) -> Result<Option<Expected>, ControlError> {
        let url = self.url(&format!("expected?bytes={}&known={known}", room.0));
        let body = bytes_or_nothing(self.get(&url, REPORT_MAX)?, EXPECTED_LEN_MAX)?;
        body.map(|body| parsed(&body)).transpose()
    }

    /// Lines, each a document; those that are there of so many as fit. Nothing in them is believed.
    pub(crate) fn documents(&self, wanted: &[DocumentId]) -> Result<Vec<u8>, ControlError> {
        let documents = wanted.iter().take(LACKING_MAX).map(ToString::to_string).collect();
        let response = self.post("documents", MANIFEST_MAX, &Lacking { documents })?;
        bytes(response, MANIFEST_LEN_MAX)
    }

    /// Where an object may be fetched, best first, that has been lacked for so long.
    pub(crate) fn sources(
        &self,
        object: ObjectId,
        lacked: Nanos,
    ) -> Result<v1::identity::Sources, ControlError> {
        let url = self.url(&format!("sources/{object}?waited_s={}", lacked.as_seconds()));
        json(self.get(&url, REPORT_MAX)?)
    }

    /// The keys of session tickets of this appliance's site.
    pub(crate) fn ticket_keys(&self) -> Result<Vec<TicketKey>, ControlError> {
        let told: v1::identity::TicketKeys = json(self.get(&self.url("ticket-keys"), REPORT_MAX)?)?;
        let keys = told.keys.iter().map(ticket_key).collect::<Option<_>>();
        keys.ok_or_else(|| ControlError::Body("a ticket key is not hex".to_owned()))
    }

    /// The hashes of an object's blocks, proved.
    pub(crate) fn blocks(
        &self,
        object: ObjectId,
        len: Bytes,
    ) -> Result<model::object::Blocks, ControlError> {
        let url = format!("{}/v1/objects/{object}/blocks", self.base);
        // One byte more than is right, so that too much is seen to be too much.
        let body = bytes(self.get(&url, BLOCKS_MAX)?, block_count(len) * 32 + 1)?;
        Ok(v1::blocks::decode(object, len, &body)?)
    }

    /// The route of this appliance that ends in `rest`.
    fn url(&self, rest: &str) -> String {
        format!("{}/v1/appliances/{}/{rest}", self.base, self.appliance)
    }

    /// The answer, all of which is to come within `most`.
    fn get(&self, url: &str, most: Duration) -> Result<Response, ControlError> {
        let request = self.client.agent().get(url).config().timeout_global(Some(most));
        checked(request.build().call())
    }

    /// The same of what this appliance tells.
    fn post(
        &self,
        rest: &str,
        most: Duration,
        told: &impl Serialize,
    ) -> Result<Response, ControlError> {
        let request = self.client.agent().post(&self.url(rest)).config().timeout_global(Some(most));
        checked(request.build().send_json(told))
    }
}

fn ticket_key(told: &v1::identity::TicketKey) -> Option<TicketKey> {
    let (mut name, mut secret) = ([0; 16], [0; 32]);
    (parse_hex(&told.name, &mut name) && parse_hex(&told.secret, &mut secret)).then_some(
        TicketKey {
            name,
            secret,
            begins: UnixSeconds(told.begins_unix_s),
            ends: UnixSeconds(told.ends_unix_s),
        },
    )
}

type Response = ureq::http::Response<ureq::Body>;

/// Refuses answers that are no success, with the beginning of their text.
fn checked(answered: Result<Response, ureq::Error>) -> Result<Response, ControlError> {
    let mut response = answered.map_err(unanswered)?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(4096).read_to_string().unwrap_or_default();
    let text = body.chars().take(200).collect();
    Err(ControlError::Status { status: status.as_u16(), text })
}

/// Why there is no answer, or no whole one.
fn unanswered(error: ureq::Error) -> ControlError {
    let text = error.to_string();
    if matches!(error, ureq::Error::Timeout(_)) {
        ControlError::Late(text)
    } else if matches!(error, ureq::Error::BodyExceedsLimit(_)) {
        ControlError::Body(text)
    } else {
        ControlError::Unreachable(text)
    }
}

fn json<T: DeserializeOwned>(response: Response) -> Result<T, ControlError> {
    parsed(&bytes(response, JSON_LEN_MAX)?)
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, ControlError> {
    serde_json::from_slice(body).map_err(|error| ControlError::Body(error.to_string()))
}

fn bytes_or_nothing(response: Response, len_max: u64) -> Result<Option<Vec<u8>>, ControlError> {
    let is_something = response.status().as_u16() != 204;
    is_something.then(|| bytes(response, len_max)).transpose()
}

fn bytes(mut response: Response, len_max: u64) -> Result<Vec<u8>, ControlError> {
    response.body_mut().with_config().limit(len_max).read_to_vec().map_err(unanswered)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_that_does_not_end_is_late_and_one_that_is_cut_or_too_long_is_not() {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12";
        let ask = |hold: bool, len_max: u64| {
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", server.local_addr().unwrap());
            let serving = std::thread::spawn(move || {
                let (mut stream, _) = server.accept().unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                // Until whoever asks has gone.
                while hold && stream.read(&mut [0; 1024]).is_ok_and(|len| 0 < len) {}
            });
            let most = Some(Duration::from_secs(if hold { 1 } else { 20 }));
            let request = ureq::get(&url).config().timeout_global(most).build();
            let said = bytes(checked(request.call()).unwrap(), len_max).unwrap_err();
            serving.join().unwrap();
            said
        };
        assert!(matches!(ask(true, 100), ControlError::Late(_)));
        assert!(matches!(ask(false, 100), ControlError::Unreachable(_)));
        assert!(matches!(ask(true, 1), ControlError::Body(_)));
    }

    #[test]
    fn silence_is_told_from_nobody_there() {
        let ask = |url: &str| {
            let request = ureq::get(url).config().timeout_global(Some(Duration::from_millis(100)));
            checked(request.build().call()).err()
        };
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        assert!(matches!(ask(&url), Some(ControlError::Late(_))));
        drop(silent);
        assert!(matches!(ask(&url), Some(ControlError::Unreachable(_))));
    }
}
