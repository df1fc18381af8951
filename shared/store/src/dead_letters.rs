//! The dead-letter queue of the audit trail: messages that no event came out of. SQS moves those there
//! that failed too often. Those that can never succeed are put there at once, with the reason.

use aws_sdk_sqs::operation::send_message::SendMessageInput;
use aws_sdk_sqs::types::MessageAttributeValue;
use raglan_aws::{ServiceClient, Sqs};

use crate::error::StoreError;

/// Message attribute: why no retry can help. Messages that SQS moved have none.
pub const REASON: &str = "reason";
/// Message attribute: the identifier that the message had in the audit queue, under which the log names it.
pub const MESSAGE_ID: &str = "message_id";

/// The queue.
#[derive(Debug, Clone)]
pub struct DeadLetterQueue {
    client: ServiceClient<Sqs>,
    url: String,
}

impl DeadLetterQueue {
    /// The queue with that URL.
    #[must_use]
    pub fn new(client: ServiceClient<Sqs>, url: impl Into<String>) -> Self {
        Self {
            client,
            url: url.into(),
        }
    }

    /// Keeps a message as it came, with the reason. When this returns, SQS has it. A message that is
    /// delivered twice is kept twice.
    ///
    /// # Errors
    /// [`StoreError`]; a message without a body is refused by SQS.
    pub async fn keep(&self, body: &str, message_id: &str, reason: &str) -> Result<(), StoreError> {
        let mut message = SendMessageInput::builder()
            .queue_url(&self.url)
            .message_body(body);
        for (name, value) in [(REASON, reason), (MESSAGE_ID, message_id)] {
            // SQS takes no attribute without a value.
            if !value.is_empty() {
                let attribute = MessageAttributeValue::builder()
                    .data_type("String")
                    .string_value(value)
                    .build()
                    .map_err(|_| self.incomplete())?;
                message = message.message_attributes(name, attribute);
            }
        }
        let answer = self.client.send(message.build()).await;
        answer.map_err(|error| StoreError::of_call("SendMessage", &self.url, &error))?;
        Ok(())
    }

    fn incomplete(&self) -> StoreError {
        StoreError::Refused {
            operation: "SendMessage",
            resource: self.url.clone(),
            code: "incomplete".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{clients_at, local_sqs, nobody_listens};

    #[tokio::test]
    async fn a_message_is_kept_as_it_came_and_says_why() {
        let (sqs, url) = local_sqs().await;
        let queue = DeadLetterQueue::new(sqs.clone(), &url);
        queue.keep("not { json", "m-1", "because").await.unwrap();
        let received = sqs.sdk().receive_message().queue_url(&url);
        let received = received.message_attribute_names("All").send().await;
        let message = &received.unwrap().messages.unwrap()[0];
        assert_eq!(message.body(), Some("not { json"));
        let attributes = message.message_attributes().unwrap();
        assert_eq!(attributes[REASON].string_value(), Some("because"));
        assert_eq!(attributes[MESSAGE_ID].string_value(), Some("m-1"));
    }

    #[tokio::test]
    async fn what_could_not_be_kept_is_an_error() {
        let url = nobody_listens().await;
        let queue = DeadLetterQueue::new(clients_at(&url).sqs, format!("{url}/1/dead"));
        let error = queue.keep("x", "", "because").await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    }
}
