//! What is told of a player's request once its response is over: to whoever follows playbacks.
//!
//! ```text
//! request ──> Texts::view ──> sent, sent ──> the end of the response ──> View ──> taken away
//! ```
//!
//! A place in a list of fixed length for each; a request costs a copy of 300 bytes and no
//! allocation. What finds no place is lost, and counted.

use std::net::IpAddr;
use std::sync::Arc;

use http1::Request;
use model::cmcd::{Hints, Object, Response};
use model::id::ObjectId;
use model::units::{Bytes, Instant};
use playback::player::Player;
use playback::token::Session;

use crate::connection::{Connection, Granted, Viewed};

/// A response to a player is over. It names the viewer: whoever takes it forgets that soon.
#[derive(Clone, Debug)]
pub struct View {
    pub client: Option<IpAddr>,
    pub player: Player,
    pub response: Response,
    /// The object that is sent.
    pub object: ObjectId,
    granted: Arc<Granted>,
}

impl View {
    /// The session of the token that it was asked with.
    pub fn session(&self) -> &Session {
        &self.granted.session
    }

    /// The asset version that it is of.
    pub fn version(&self) -> &str {
        self.granted.version()
    }
}

/// Views that nobody has taken away yet.
#[derive(Debug)]
pub(crate) struct Views {
    max: usize,
    list: Vec<View>,
}

impl Views {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, list: Vec::with_capacity(max) }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Gives the list away for the memory of `spare`.
    pub(crate) fn take(&mut self, spare: &mut Vec<View>) {
        spare.clear();
        spare.reserve_exact(self.max);
        std::mem::swap(&mut self.list, spare);
    }

    /// True if views are told of.
    pub(crate) fn are_told(&self) -> bool {
        self.max != 0
    }

    /// A request of which a view will be told.
    pub(crate) fn begin(
        &self,
        now: Instant,
        connection: &mut Connection,
        request: &Request<'_>,
        (object, kind, hints): (ObjectId, Object, Hints),
    ) {
        if !self.are_told() {
            return;
        }
        let agent = request.fields.user_agent.unwrap_or_default();
        connection.player.get_or_insert_with(|| Player::of(agent));
        let viewed = Viewed { begun: now, sent: Bytes::ZERO, object, kind, hints };
        connection.texts.view = Some(viewed);
    }

    /// Its response is over. False if its view had to be dropped.
    pub(crate) fn end(&mut self, now: Instant, connection: &mut Connection, whole: bool) -> bool {
        let Some(viewed) = connection.texts.view.take() else { return true };
        let Some(granted) = &connection.granted else { return true };
        if self.max <= self.list.len() {
            return false;
        }
        let Viewed { begun, sent, object, kind, hints } = viewed;
        self.list.push(View {
            client: connection.client,
            player: connection.player.unwrap_or_default(),
            response: Response { begun, ended: now, sent, whole, object: kind, hints },
            object,
            granted: Arc::clone(granted),
        });
        assert!(self.list.len() <= self.max, "the list has one length");
        true
    }
}

/// The kind of an object, by its content type.
pub(crate) fn object(content_type: &str) -> Object {
    match content_type.split('/').next() {
        Some("video") => Object::Video,
        Some("audio") => Object::Audio,
        _ => Object::Other,
    }
}
