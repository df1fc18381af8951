//! Which knowledge bases a caller may use, read from the catalogue for every call.
//!
//! Round trips: what to read stands in the key's record. An instance remembers what the keys reach that
//! have called a tool in it, and reads that part of the catalogue at the same time as the record
//! ([`Scopes::read_early`]); the record judges afterwards. What was read early is used when the record still
//! reaches the same, and thrown away otherwise. It is never kept for another request, so a change of the
//! catalogue or of the key acts on the next call.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use raglan_core::access::{EffectiveScope, Grant};
use raglan_core::catalog::KnowledgeBase;
use raglan_core::key::KeyHash;
use raglan_store::{CatalogStore, StoreError};
use serde_json::Value;

use crate::authenticate::Caller;
use crate::body::RequestBody;

/// Keys that an instance remembers; beyond that it begins anew.
const REMEMBERED_MAX: usize = 4096;
/// A key that reaches more than this is not read for early: it would be much reading for a call that may
/// be refused.
const EARLY_ENTRIES_MAX: usize = 200;

/// Reads scopes.
#[derive(Debug)]
pub struct Scopes {
    catalog: CatalogStore,
    remembered: Mutex<HashMap<KeyHash, Grant>>,
}

/// A part of the catalogue that was read while it was not known yet who calls.
#[derive(Debug)]
pub struct EarlyRead {
    grant: Grant,
    read: Result<Vec<KnowledgeBase>, StoreError>,
}

/// Holds what was read early, until the first tool of the request takes it.
#[derive(Debug, Default)]
pub struct EarlyReadSlot(Mutex<Option<EarlyRead>>);

impl EarlyReadSlot {
    /// A slot with what was read, if anything was.
    #[must_use]
    pub const fn of(early: Option<EarlyRead>) -> Self {
        Self(Mutex::new(early))
    }

    fn take(&self) -> Option<EarlyRead> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Scopes {
    /// Over this catalogue.
    #[must_use]
    pub fn new(catalog: CatalogStore) -> Self {
        Self {
            catalog,
            remembered: Mutex::default(),
        }
    }

    /// Reads what the key reached the last time. `None` when the key is not remembered, or when the body
    /// calls no tool.
    pub async fn read_early(&self, key: &KeyHash, body: &RequestBody) -> Option<EarlyRead> {
        let grant = self.remembered().get(key)?.clone();
        let method = body.json()?.get("method").and_then(Value::as_str);
        if method != Some("tools/call") {
            return None;
        }
        // Boxed, because most requests have nothing to read.
        let read = Box::pin(self.catalog.read(&grant.reach())).await;
        Some(EarlyRead { grant, read })
    }

    /// The knowledge bases that the caller may use at this moment.
    ///
    /// # Errors
    /// [`StoreError`]: then nothing is known and the call must not go on.
    pub async fn of(
        &self,
        caller: &Caller,
        early: &EarlyReadSlot,
    ) -> Result<EffectiveScope, StoreError> {
        let grant = &caller.grant;
        let early = early.take();
        let early = early.filter(|early| early.grant.reach() == grant.reach());
        let read = match early {
            Some(early) => early.read?,
            None => self.catalog.read(&grant.reach()).await?,
        };
        self.remember(caller, read.len());
        Ok(grant.effective_scope(read))
    }

    /// The key does not work any more.
    pub fn forget(&self, key: &KeyHash) {
        self.remembered().remove(key);
    }

    fn remember(&self, caller: &Caller, entries: usize) {
        let (key, grant) = (&caller.key_hash, &caller.grant);
        let mut remembered = self.remembered();
        if entries > EARLY_ENTRIES_MAX {
            remembered.remove(key);
            return;
        }
        if remembered.get(key) == Some(grant) {
            return;
        }
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(key.clone(), grant.clone());
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<KeyHash, Grant>> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
