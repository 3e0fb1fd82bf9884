//! API tokens: those that there are, and those that are made and removed.

use super::Control;
use crate::members::access::{self, Known, Token};
use crate::state::issue::{self, TokenError};

impl Control {
    /// Reads tokens anew, which the command line may have made, and stores when they were used;
    /// and the certificate, if it has changed.
    pub(crate) async fn refresh_access(&self) {
        if let Some(certificate) = &self.certificate {
            certificate.refresh(false);
        }
        // A front has its tokens of the writer.
        if self.store.as_ref().is_none() {
            return;
        }
        let refreshed = async {
            for (id, at) in self.access.take_used() {
                self.store.put_used(&id, at).await?;
            }
            let _writing = self.writing.lock().await;
            self.access.replace(self.store.tokens().await?);
            Ok(())
        };
        if let Err(error) = refreshed.await {
            self.store_failed(&error);
        }
    }

    pub(crate) async fn make_token(
        &self,
        name: &str,
        role: access::Role,
    ) -> Result<(Token, Known), TokenError> {
        let _writing = self.writing.lock().await;
        let made = issue::issue(&self.store, name, role, self.clock.unix()).await?;
        self.access.replace(self.store.tokens().await?);
        Ok(made)
    }

    /// Removes a token; none if there is none.
    pub(crate) async fn delete_token(&self, id: &str) -> Result<Option<Known>, TokenError> {
        let _writing = self.writing.lock().await;
        let tokens = self.store.tokens().await?;
        let Some(token) = tokens.iter().find(|token| token.id == id) else { return Ok(None) };
        let admins = tokens.iter().filter(|token| token.role == access::Role::Admin);
        if token.role == access::Role::Admin && admins.count() == 1 {
            return Err(TokenError::LastAdmin);
        }
        self.store.delete_token(id).await?;
        self.access.replace(self.store.tokens().await?);
        Ok(Some(token.clone()))
    }
}
