//! OAuth 2.1 access tokens beside API keys, off unless `OAUTH_ISSUER` and `OAUTH_RESOURCE` are set.
//!
//! raglan is a resource server: it publishes its metadata (RFC 9728), checks tokens that the issuer
//! signed for it (RFC 9068, RFC 8707), and issues none. A token says who the caller is; what the caller
//! may do stands in a grant record in the keys table, as for a key. No token gives more than that.

mod issuer_keys;
mod metadata;
mod token;

use std::collections::BTreeSet;
use std::sync::Arc;

use raglan_core::clock::Clock;
use raglan_core::key::KeyHash;
use raglan_core::tool::Tool;
use raglan_outbound::OutboundClient;

use self::issuer_keys::IssuerKeys;
pub use self::issuer_keys::IssuerKeysError;
pub use self::token::{TokenError, looks_like_a_token};

/// The scope without which no token is accepted.
pub const SCOPE: &str = "raglan";

/// Where tokens come from and what they must be meant for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OauthConfig {
    /// `OAUTH_ISSUER`: the authorization server's issuer identifier, as in the tokens.
    pub issuer: String,
    /// `OAUTH_RESOURCE`: the URL of this MCP endpoint, as clients use it.
    pub resource: String,
}

/// Why a token is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum OauthError {
    /// It is no good: the caller needs another one.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// It is good, but its scopes do not include [`SCOPE`].
    #[error("the token's scopes do not include {SCOPE}")]
    InsufficientScope,
    /// The issuer's keys cannot be had, so nothing can be said about the token.
    #[error(transparent)]
    Issuer(#[from] IssuerKeysError),
}

/// Who a token stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenBearer {
    /// Under which the grant record is stored.
    pub record_hash: KeyHash,
    /// The tools that the token's scopes name (`raglan:retrieve`); `None` when they name none, which
    /// leaves all that the record grants.
    pub tools: Option<BTreeSet<Tool>>,
}

/// Checks access tokens.
pub struct Oauth {
    config: OauthConfig,
    keys: IssuerKeys,
    clock: Arc<dyn Clock>,
}

impl Oauth {
    /// A checker for this issuer. Nothing is asked of the network here.
    #[must_use]
    pub fn new(config: OauthConfig, clock: Arc<dyn Clock>) -> Self {
        let client = OutboundClient::default();
        Self {
            keys: IssuerKeys::new(config.issuer.clone(), client),
            config,
            clock,
        }
    }

    /// Where clients find the metadata, and the document itself.
    #[must_use]
    pub const fn config(&self) -> &OauthConfig {
        &self.config
    }

    /// Checks a token: signature, issuer, audience, time, scope.
    ///
    /// # Errors
    /// [`OauthError`]
    pub async fn check(&self, token: &str) -> Result<TokenBearer, OauthError> {
        let now = self.clock.now();
        let parsed = token::Parsed::parse(token)?;
        let key = self.keys.find(parsed.key_id(), now).await?;
        let key = key.ok_or(TokenError::UnknownKey)?;
        let claims = parsed.verify(&key)?;
        claims.check(&self.config, now)?;
        let scopes: Vec<&str> = claims.scopes().collect();
        let named: BTreeSet<Tool> = scopes
            .iter()
            .filter_map(|scope| scope.strip_prefix(SCOPE)?.strip_prefix(':'))
            .filter_map(Tool::from_name)
            .collect();
        let whole = scopes.contains(&SCOPE);
        if !whole && named.is_empty() {
            return Err(OauthError::InsufficientScope);
        }
        Ok(TokenBearer {
            record_hash: KeyHash::of_subject(&self.config.issuer, claims.subject()),
            tools: if whole { None } else { Some(named) },
        })
    }
}

impl OauthConfig {
    /// The RFC 9728 document.
    #[must_use]
    pub fn metadata(&self) -> serde_json::Value {
        metadata::document(self)
    }

    /// Whether the metadata is served under this path.
    #[must_use]
    pub fn is_metadata_path(&self, path: &str) -> bool {
        metadata::is_path(path, crate::edge::MCP_PATH)
    }

    /// The challenge of a 401 (RFC 9728 §5.1); with `insufficient_scope` that of a 403 (RFC 6750 §3.1).
    #[must_use]
    pub fn challenge(&self, insufficient_scope: bool) -> String {
        metadata::challenge(self, insufficient_scope)
    }
}
