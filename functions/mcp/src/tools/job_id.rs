//! Identifiers of engines' own indexing jobs, as callers see them: the knowledge base and the engine's
//! identifier, signed. No table is needed to know whose job it is, and no engine is asked for an
//! identifier that it never gave.

use raglan_core::catalog::KnowledgeBaseId;

use crate::config::CursorSecret;
use crate::cursor::CursorScope;

/// What the identifiers begin with; those in the catalogue do not.
const PREFIX: &str = "job_";
/// Longest identifier of an engine that is passed on, in bytes.
const JOB_MAX_BYTES: usize = 500;
/// Everybody who may see the knowledge base may see its jobs, so the identifiers are not bound to a key.
const SCOPE: CursorScope<'static> = CursorScope {
    key_id: "",
    tool: "get_task",
    question: "",
};

/// An engine's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineJob {
    /// The knowledge base that it works on; it decides who may see the job.
    pub kb_id: KnowledgeBaseId,
    /// The engine's identifier.
    pub job: String,
}

/// The identifier for callers; `None` when the engine's own is too long for one.
pub fn seal(secret: &CursorSecret, kb_id: &KnowledgeBaseId, job: &str) -> Option<String> {
    let position = format!("{kb_id}/{job}");
    (job.len() <= JOB_MAX_BYTES).then(|| format!("{PREFIX}{}", SCOPE.seal(secret, &position)))
}

/// The job behind an identifier; `None` when we did not make it.
pub fn open(secret: &CursorSecret, id: &str) -> Option<EngineJob> {
    let sealed = id.strip_prefix(PREFIX)?;
    let position = SCOPE.open(secret, sealed).ok()??;
    let (kb_id, job) = position.split_once('/')?;
    Some(EngineJob {
        kb_id: KnowledgeBaseId::parse(kb_id).ok()?,
        job: job.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_identifier_that_was_made_here_leads_to_its_job() {
        let secret = CursorSecret::new(*b"0123456789abcdef0123456789abcdef");
        let other = CursorSecret::new(*b"ffffffffffffffffffffffffffffffff");
        let kb_id = KnowledgeBaseId::parse("wiki").unwrap();
        let id = seal(&secret, &kb_id, "ds/JOB/1").unwrap();
        let job = "ds/JOB/1".to_owned();
        assert_eq!(
            open(&secret, &id),
            Some(EngineJob {
                kb_id: kb_id.clone(),
                job
            })
        );
        assert_eq!(open(&other, &id), None);
        let forged = [
            "",
            "job_",
            &id[4..],
            &id[..id.len() - 1],
            &format!("{id}A"),
            "job_d2lraS9KT0I",
        ];
        for forged in forged {
            assert_eq!(open(&secret, forged), None, "{forged}");
        }
        assert_eq!(seal(&secret, &kb_id, &"j".repeat(501)), None);
    }
}
