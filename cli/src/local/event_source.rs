//! What Lambda does between a queue and a function: takes messages in batches, hands them over as an
//! SQS event, and deletes those that the function did not report as failed.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::Duration;

use aws_lambda_events::event::sqs::{SqsBatchResponse, SqsEvent, SqsMessage};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use raglan_aws::AwsClients;
use raglan_store::StoreError;
use tokio::sync::watch;

use super::provision::queue_arn;

/// The largest batch, as the template has it.
const BATCH_SIZE: usize = 100;
/// The most messages that SQS gives or deletes at once.
const REQUEST_SIZE: usize = 10;
/// How long one poll waits for a message. The loop ends after the poll that is under way.
const POLL_WAIT_SECONDS: i32 = 1;
/// The pause after a poll that failed.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// The connection between one queue and one function.
#[derive(Debug, Clone)]
pub struct EventSource {
    client: aws_sdk_sqs::Client,
    queue_url: String,
    queue_arn: String,
}

impl EventSource {
    /// Connects to the queue with that URL.
    ///
    /// # Errors
    /// [`StoreError`] when the queue cannot be asked.
    pub async fn connect(
        clients: &AwsClients,
        queue_url: impl Into<String>,
    ) -> Result<Self, StoreError> {
        let queue_url = queue_url.into();
        let queue_arn = queue_arn(&clients.sqs.sdk(), &queue_url).await?;
        Ok(Self {
            client: clients.sqs.sdk(),
            queue_url,
            queue_arn,
        })
    }

    /// Hands messages to `handler` until `stopped` turns true or its sender is gone, and then
    /// everything that still lies in the queue. A poll that fails is logged and tried again.
    pub async fn run<F, E>(&self, handler: impl Fn(SqsEvent) -> F, stopped: watch::Receiver<bool>)
    where
        F: Future<Output = Result<SqsBatchResponse, E>>,
        E: Display,
    {
        while !*stopped.borrow() && stopped.has_changed().is_ok() {
            if let Err(error) = self.poll(POLL_WAIT_SECONDS, &handler).await {
                tracing::warn!(%error, "the audit queue could not be read");
                tokio::time::sleep(FAILURE_PAUSE).await;
            }
        }
        if let Err(error) = self.drain(&handler).await {
            tracing::error!(%error, "the audit queue could not be emptied");
        }
    }

    /// Hands everything to `handler` that can be received now. Returns the number of messages that
    /// stay in the queue because their handling failed.
    ///
    /// # Errors
    /// [`StoreError`] when the queue cannot be asked.
    pub async fn drain<F, E>(&self, handler: &impl Fn(SqsEvent) -> F) -> Result<u64, StoreError>
    where
        F: Future<Output = Result<SqsBatchResponse, E>>,
        E: Display,
    {
        while self.poll(0, handler).await? > 0 {}
        self.message_count().await
    }

    /// Hands at most one batch to `handler`, after waiting for it for up to `wait_seconds`. Returns
    /// the number of messages in the batch.
    ///
    /// # Errors
    /// [`StoreError`] when the queue cannot be asked; the handler's own failures are logged, and its
    /// messages come again when their visibility timeout is over.
    pub async fn poll<F, E>(
        &self,
        wait_seconds: i32,
        handler: &impl Fn(SqsEvent) -> F,
    ) -> Result<usize, StoreError>
    where
        F: Future<Output = Result<SqsBatchResponse, E>>,
        E: Display,
    {
        let mut messages = self.receive(wait_seconds).await?;
        while messages.len().is_multiple_of(REQUEST_SIZE)
            && !messages.is_empty()
            && messages.len() < BATCH_SIZE
        {
            // Those that are there already must not wait until the queue can be asked again.
            let more = self.receive(0).await.unwrap_or_default();
            if more.is_empty() {
                break;
            }
            messages.extend(more);
        }
        if messages.is_empty() {
            return Ok(0);
        }
        match handler(self.event(&messages)).await {
            Ok(response) => self.delete_handled(&messages, &response).await?,
            Err(error) => tracing::error!(%error, "a batch failed as a whole"),
        }
        Ok(messages.len())
    }

    async fn receive(&self, wait_seconds: i32) -> Result<Vec<Message>, StoreError> {
        let received = self
            .client
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(i32::try_from(REQUEST_SIZE).unwrap_or(1))
            .wait_time_seconds(wait_seconds)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .send()
            .await
            .map_err(|error| StoreError::of_call("ReceiveMessage", &self.queue_url, &error))?;
        Ok(received.messages.unwrap_or_default())
    }

    /// Messages in the queue, those included that are hidden until they are tried again.
    async fn message_count(&self) -> Result<u64, StoreError> {
        let output = self
            .client
            .get_queue_attributes()
            .queue_url(&self.queue_url)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessages)
            .attribute_names(QueueAttributeName::ApproximateNumberOfMessagesNotVisible)
            .send()
            .await
            .map_err(|error| StoreError::of_call("GetQueueAttributes", &self.queue_url, &error))?;
        let counts = output.attributes.unwrap_or_default();
        Ok(counts
            .values()
            .filter_map(|count| count.parse::<u64>().ok())
            .sum())
    }

    fn event(&self, messages: &[Message]) -> SqsEvent {
        let mut event = SqsEvent::default();
        event.records = messages
            .iter()
            .map(|message| self.record(message))
            .collect();
        event
    }

    fn record(&self, message: &Message) -> SqsMessage {
        let attributes: HashMap<_, _> = message
            .attributes
            .iter()
            .flatten()
            .map(|(name, value)| (name.as_str().to_owned(), value.clone()))
            .collect();
        let mut record = SqsMessage::default();
        record.message_id.clone_from(&message.message_id);
        record.receipt_handle.clone_from(&message.receipt_handle);
        record.body.clone_from(&message.body);
        record.md5_of_body.clone_from(&message.md5_of_body);
        record.attributes = attributes;
        record.event_source = Some("aws:sqs".to_owned());
        record.aws_region = self.queue_arn.split(':').nth(3).map(ToOwned::to_owned);
        record.event_source_arn = Some(self.queue_arn.clone());
        record
    }

    /// Deletes what was not reported as failed. As in Lambda, a report that names a message which is
    /// not in the batch makes the whole batch a failure.
    async fn delete_handled(
        &self,
        messages: &[Message],
        response: &SqsBatchResponse,
    ) -> Result<(), StoreError> {
        let failed: Vec<&str> = response
            .batch_item_failures
            .iter()
            .map(|failure| failure.item_identifier.as_str())
            .collect();
        let known = |id: &&str| {
            messages
                .iter()
                .any(|message| message.message_id() == Some(*id))
        };
        if !failed.iter().all(known) {
            tracing::error!("the failures of a batch name a message that is not in it");
            return Ok(());
        }
        let entries: Vec<_> = messages
            .iter()
            .filter(|message| message.message_id().is_none_or(|id| !failed.contains(&id)))
            .enumerate()
            .filter_map(|(n, message)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(message.receipt_handle()?)
                    .build()
                    .ok()
            })
            .collect();
        for entries in entries.chunks(REQUEST_SIZE) {
            let output = self
                .client
                .delete_message_batch()
                .queue_url(&self.queue_url)
                .set_entries(Some(entries.to_vec()))
                .send()
                .await
                .map_err(|error| {
                    StoreError::of_call("DeleteMessageBatch", &self.queue_url, &error)
                })?;
            for failure in output.failed() {
                tracing::warn!(code = failure.code(), "a handled message was not deleted");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use super::super::emulators::{EmulatorOptions, Emulators};
    use super::super::provision::{LocalResources, provision};
    use super::super::template::LocalTemplate;
    use super::*;

    async fn start() -> (Emulators, LocalResources, EventSource) {
        let emulators = Emulators::start(EmulatorOptions::default()).await.unwrap();
        let clients = emulators.clients();
        let template = LocalTemplate::embedded().unwrap();
        let resources = provision(&clients, &template).await.unwrap();
        let source = EventSource::connect(&clients, &resources.audit_queue_url)
            .await
            .unwrap();
        (emulators, resources, source)
    }

    async fn send(source: &EventSource, bodies: &[&str]) {
        for body in bodies {
            let message = source.client.send_message().queue_url(&source.queue_url);
            message.message_body(*body).send().await.unwrap();
        }
    }

    fn bodies(event: &SqsEvent) -> Vec<String> {
        event
            .records
            .iter()
            .filter_map(|record| record.body.clone())
            .collect()
    }

    #[tokio::test]
    async fn an_event_has_what_lambda_puts_into_it() {
        let (emulators, _, source) = start().await;
        send(&source, &["hello"]).await;
        let seen = Mutex::new(None);
        let handler = async |event: SqsEvent| {
            *seen.lock().unwrap() = Some(event);
            Ok::<_, Infallible>(SqsBatchResponse::default())
        };
        assert_eq!(source.poll(1, &handler).await, Ok(1));
        let event = seen.lock().unwrap().take().unwrap();
        let record = &event.records[0];
        assert_eq!(record.body.as_deref(), Some("hello"));
        assert_eq!(
            record.md5_of_body.as_deref(),
            Some("5d41402abc4b2a76b9719d911017c592")
        );
        assert_eq!(record.event_source.as_deref(), Some("aws:sqs"));
        assert_eq!(record.aws_region.as_deref(), Some("us-east-1"));
        assert_eq!(
            record.event_source_arn.as_deref(),
            Some("arn:aws:sqs:us-east-1:000000000000:AuditQueue")
        );
        assert!(record.message_id.is_some() && record.receipt_handle.is_some());
        assert_eq!(record.attributes["ApproximateReceiveCount"], "1");
        assert!(record.attributes.contains_key("SentTimestamp"));
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn a_batch_is_as_large_as_the_template_has_it() {
        let (emulators, _, source) = start().await;
        let all: Vec<String> = (0..110).map(|n| n.to_string()).collect();
        send(&source, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let handler = async |_: SqsEvent| Ok::<_, Infallible>(SqsBatchResponse::default());
        assert_eq!(source.poll(0, &handler).await, Ok(BATCH_SIZE));
        assert_eq!(source.poll(0, &handler).await, Ok(10));
        assert_eq!(source.drain(&handler).await, Ok(0));
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn only_what_was_handled_leaves_the_queue() {
        let (emulators, _, source) = start().await;
        send(&source, &["good", "bad", "good"]).await;
        let handler = async |event: SqsEvent| {
            let mut response = SqsBatchResponse::default();
            for record in event.records {
                if record.body.as_deref() == Some("bad") {
                    response.add_failure(record.message_id.unwrap());
                }
            }
            Ok::<_, Infallible>(response)
        };
        assert_eq!(source.drain(&handler).await, Ok(1));
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn a_batch_that_fails_as_a_whole_stays_whole() {
        let (emulators, _, source) = start().await;
        send(&source, &["one", "two"]).await;
        let refused = async |_: SqsEvent| Err::<SqsBatchResponse, _>("no");
        assert_eq!(source.drain(&refused).await, Ok(2));
        send(&source, &["three"]).await;
        let unclear = async |_: SqsEvent| {
            let mut response = SqsBatchResponse::default();
            response.add_failure("");
            Ok::<_, Infallible>(response)
        };
        assert_eq!(source.drain(&unclear).await, Ok(3));
        emulators.shutdown().await;
    }

    #[tokio::test]
    async fn stopping_hands_over_what_still_lies_in_the_queue() {
        let (emulators, _, source) = start().await;
        let all: Vec<String> = (0..125).map(|n| n.to_string()).collect();
        let texts: Vec<&str> = all.iter().map(String::as_str).collect();
        send(&source, &texts).await;

        let (batches, mut arrived) = tokio::sync::mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(true);
        let running = source.clone();
        let run = tokio::spawn(async move {
            let handler = async |event: SqsEvent| {
                batches.send(bodies(&event)).unwrap();
                Ok::<_, Infallible>(SqsBatchResponse::default())
            };
            running.run(handler, stopped).await;
        });
        run.await.unwrap();
        drop(stop);
        let mut seen = Vec::new();
        while let Some(batch) = arrived.recv().await {
            assert!(batch.len() <= BATCH_SIZE);
            seen.extend(batch);
        }
        seen.sort_by_key(|body| body.parse::<u32>().unwrap());
        assert_eq!(seen, all);
        emulators.shutdown().await;
    }
}
