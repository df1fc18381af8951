//! The queue that audit events travel through, from the MCP function to the audit function.

use aws_sdk_sqs::operation::send_message::SendMessageInput;
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchInput;
use raglan_aws::{ServiceClient, Sqs};
use raglan_core::audit::AuditEvent;
use serde::{Deserialize, Serialize};

use crate::audit_record::AuditRecord;
use crate::error::StoreError;
use crate::item_json::usual;

/// Largest message, in bytes. SQS takes 1 MiB, but an event has to fit into a DynamoDB item (400 KB)
/// at the other end, with its key and its index entries.
pub const MAX_MESSAGE_BYTES: usize = 255 * 1024;

/// The audit queue.
#[derive(Debug, Clone)]
pub struct AuditQueue {
    client: ServiceClient<Sqs>,
    url: String,
}

/// The usual answer to `SendMessage`: the message has an identifier.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Stored {
    #[expect(
        dead_code,
        reason = "that it is there is what says that the message is stored"
    )]
    message_id: String,
}

impl AuditQueue {
    /// The queue with that URL.
    #[must_use]
    pub fn new(client: ServiceClient<Sqs>, url: impl Into<String>) -> Self {
        Self {
            client,
            url: url.into(),
        }
    }

    /// Hands an event over. When this returns, the event is stored by SQS.
    ///
    /// # Errors
    /// [`StoreError`]; `TooLarge` above [`MAX_MESSAGE_BYTES`], without asking SQS.
    pub async fn send(&self, event: &AuditEvent) -> Result<(), StoreError> {
        self.send_json(event, &event.event_id).await
    }

    /// Hands over an event with everything that its writer said, as [`AuditQueue::send`] does.
    ///
    /// # Errors
    /// As [`AuditQueue::send`].
    pub async fn send_record(&self, record: &AuditRecord) -> Result<(), StoreError> {
        self.send_json(record.fields(), &record.event().event_id)
            .await
    }

    async fn send_json(&self, event: &impl Serialize, event_id: &str) -> Result<(), StoreError> {
        let body = serde_json::to_string(event).map_err(|_| StoreError::Corrupt {
            resource: self.url.clone(),
            record: event_id.to_owned(),
        })?;
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(StoreError::TooLarge {
                resource: self.url.clone(),
                size_bytes: body.len(),
                limit_bytes: MAX_MESSAGE_BYTES,
            });
        }
        let input = SendMessageInput::builder()
            .queue_url(&self.url)
            .message_body(body);
        self.client
            .send_with_reader(input.build(), usual::<Stored>)
            .await
            .map_err(|error| StoreError::of_call("SendMessage", &self.url, &error))?;
        Ok(())
    }

    /// Opens a connection to SQS with an empty batch, which SQS refuses without doing anything: the
    /// first event does not pay for the TLS handshake, and no further right is needed.
    ///
    /// # Errors
    /// [`StoreError`] when SQS could not be reached; the next call opens the connection then.
    pub async fn warm(&self) -> Result<(), StoreError> {
        let answer = self
            .client
            .send(
                SendMessageBatchInput::builder()
                    .queue_url(&self.url)
                    .set_entries(Some(Vec::new()))
                    .build(),
            )
            .await;
        match answer.map_err(|error| StoreError::of_call("SendMessageBatch", &self.url, &error)) {
            Ok(_) | Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{audit_event, clients_at, local_sqs, nobody_listens, scripted};

    #[tokio::test]
    async fn an_event_arrives_as_it_was_sent() {
        let (sqs, url) = local_sqs().await;
        let event = audit_event("event-1");
        let queue = AuditQueue::new(sqs.clone(), &url);
        queue.warm().await.unwrap();
        queue.send(&event).await.unwrap();

        let output = sqs
            .sdk()
            .receive_message()
            .queue_url(&url)
            .send()
            .await
            .unwrap();
        let messages = output.messages();
        assert_eq!(messages.len(), 1);
        let body = messages[0].body().unwrap();
        assert_eq!(serde_json::from_str::<AuditEvent>(body).unwrap(), event);
    }

    #[tokio::test]
    async fn an_event_that_no_item_can_hold_is_refused_without_asking_sqs() {
        let queue = AuditQueue::new(clients_at(&nobody_listens().await).sqs, "http://queue");
        let event = AuditEvent {
            parameters: Some("x".repeat(MAX_MESSAGE_BYTES)),
            ..audit_event("event-1")
        };
        let error = queue.send(&event).await.unwrap_err();
        assert!(matches!(error, StoreError::TooLarge { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_queue_that_does_not_answer_is_unavailable_and_one_that_is_gone_is_not_found() {
        let url = nobody_listens().await;
        let queue = AuditQueue::new(clients_at(&url).sqs, format!("{url}/1/audit"));
        let error = queue.send(&audit_event("event-1")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");

        let answer = r#"{"MD5OfMessageBody":"1","MessageId":"2"}"#;
        assert!(usual::<Stored>(answer.as_bytes()).is_some());
        let server = scripted(vec![(200, "<html>".to_owned())]).await;
        let queue = AuditQueue::new(clients_at(&server.url).sqs, format!("{url}/1/audit"));
        let error = queue.send(&audit_event("event-1")).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");

        let gone = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"gone"}"#;
        let server = scripted(vec![(400, gone.to_owned())]).await;
        let queue = AuditQueue::new(
            clients_at(&server.url).sqs,
            format!("{}/1/audit", server.url),
        );
        let error = queue.send(&audit_event("event-1")).await.unwrap_err();
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
}
