//! Answers from a model of Amazon Bedrock: the Converse interface.
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html>

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_config::Region;
use aws_sdk_bedrockruntime::operation::converse::{ConverseInput, ConverseOutput};
use aws_sdk_bedrockruntime::types::{
    ContentBlock, ConversationRole, GuardrailConfiguration, GuardrailConverseContentBlock,
    GuardrailConverseContentQualifier, GuardrailConverseTextBlock, InferenceConfiguration, Message,
    StopReason, SystemContentBlock, TokenUsage,
};
use aws_smithy_types::error::operation::BuildError;
use futures::future::BoxFuture;
use raglan_aws::service::{BedrockRuntime, ServiceClient};
use raglan_aws::{CallLimits, LazyAccount};
use raglan_core::clock::Clock;
use raglan_engines::call::{CallError, ExchangeLimits, Surroundings};
use raglan_engines::configuration::answers::ConverseSettings;
use raglan_rag::backend::{BackendError, EngineCall};
use raglan_rag::generate::{
    Generation, GenerationError, GenerationRequest, Generator, Stopped, Usage,
};
use tokio::sync::OnceCell;

use crate::connection::client_in;
use crate::exchange::{Deadline, Guard};

/// The name that the model has in the log.
const NAME: &str = "answers (bedrock-runtime)";
/// Thinking is part of the reply.
const RESPONSE_MAX_BYTES: usize = 4 * 1024 * 1024;
/// A model that throttles has not worked: it is asked once more, after this pause.
const PAUSE: Duration = Duration::from_millis(500);

/// A model of Bedrock.
pub struct ConverseGenerator {
    settings: ConverseSettings,
    temperature: Option<f32>,
    account: Arc<LazyAccount>,
    client: OnceCell<ServiceClient<BedrockRuntime>>,
    guard: Guard,
}

impl ConverseGenerator {
    /// The model that the settings name. Nothing is loaded or opened yet.
    #[must_use]
    pub fn new(
        settings: ConverseSettings,
        temperature: Option<f32>,
        surroundings: &Surroundings,
    ) -> Self {
        let (account, clock) = (&surroundings.account, &surroundings.clock);
        Self::of_account(
            settings,
            temperature,
            Arc::clone(account),
            Arc::clone(clock),
        )
    }

    /// The same, with this account.
    #[must_use]
    pub fn of_account(
        settings: ConverseSettings,
        temperature: Option<f32>,
        account: Arc<LazyAccount>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            settings,
            temperature,
            account,
            client: OnceCell::const_new(),
            guard: Guard::new(NAME.to_owned(), clock),
        }
    }

    async fn client(&self) -> &ServiceClient<BedrockRuntime> {
        let make = || async {
            let region = self.settings.region.clone().map(Region::new);
            client_in(self.account.config().await, region, None)
        };
        self.client.get_or_init(make).await
    }

    async fn converse(
        &self,
        request: &GenerationRequest,
        deadline: &Deadline,
    ) -> Result<ConverseOutput, CallError> {
        let messages = self.messages(request).map_err(|error| unwritable(&error))?;
        // Repeating a request that the model has worked on would cost as much again.
        let limits = CallLimits {
            attempts: 1,
            ..deadline.bounds()?
        };
        let inference = InferenceConfiguration::builder()
            .max_tokens(i32::try_from(request.max_tokens).unwrap_or(i32::MAX))
            .set_temperature(self.temperature)
            .build();
        let guardrail = self.settings.guardrail.as_ref().map(|guardrail| {
            GuardrailConfiguration::builder()
                .guardrail_identifier(&guardrail.id)
                .guardrail_version(&guardrail.version)
                .build()
        });
        let request = ConverseInput::builder()
            .model_id(&self.settings.model)
            .system(SystemContentBlock::Text(request.system.clone()))
            .set_messages(Some(messages))
            .inference_config(inference)
            .set_guardrail_config(guardrail)
            .build();
        let client = self.client().await;
        let call = client.send_within(request, &limits);
        self.guard.run("Converse", limits.time, call).await
    }

    fn messages(&self, request: &GenerationRequest) -> Result<Vec<Message>, BuildError> {
        let mut messages = Vec::new();
        let text = |text: &str| vec![ContentBlock::Text(text.to_owned())];
        for turn in &request.earlier {
            messages.push(message(ConversationRole::User, text(&turn.question))?);
            messages.push(message(ConversationRole::Assistant, text(&turn.answer))?);
        }
        let asked = if self.settings.guardrail.is_some() {
            vec![
                guarded(
                    &request.passages,
                    GuardrailConverseContentQualifier::GroundingSource,
                )?,
                guarded(&request.question, GuardrailConverseContentQualifier::Query)?,
            ]
        } else {
            text(&format!("{}\n\n{}", request.passages, request.question))
        };
        messages.push(message(ConversationRole::User, asked)?);
        Ok(messages)
    }

    /// Texts count. What the model thought, and calls of tools, are not looked at.
    fn read(&self, output: &ConverseOutput) -> Result<Generation, GenerationError> {
        let message = output.output().and_then(|output| output.as_message().ok());
        let message = message.ok_or_else(|| {
            GenerationError::UnreadableAnswer("Converse: a reply without a message".to_owned())
        })?;
        let texts = message.content().iter();
        let texts = texts.filter_map(|block| block.as_text().ok());
        Ok(Generation {
            text: texts.map(String::as_str).collect(),
            stopped: match output.stop_reason() {
                StopReason::EndTurn | StopReason::StopSequence => Stopped::Finished,
                StopReason::MaxTokens | StopReason::ModelContextWindowExceeded => Stopped::TooLong,
                StopReason::GuardrailIntervened | StopReason::ContentFiltered => Stopped::Withheld,
                _ => Stopped::Otherwise,
            },
            model: self.settings.model.clone(),
            usage: output.usage().and_then(usage),
        })
    }
}

impl Generator for ConverseGenerator {
    fn generate<'a>(
        &'a self,
        request: &'a GenerationRequest,
        call: &'a EngineCall,
    ) -> BoxFuture<'a, Result<Generation, GenerationError>> {
        let limits = ExchangeLimits {
            attempt_timeout: self.settings.attempt_timeout,
            response_max_bytes: RESPONSE_MAX_BYTES,
        };
        Box::pin(async move {
            let deadline = Deadline::of(call, limits);
            let mut output = self.converse(request, &deadline).await;
            if matches!(output, Err(CallError::Engine(BackendError::Throttled)))
                && deadline.has_more_than(PAUSE)
            {
                tokio::time::sleep(PAUSE).await;
                output = self.converse(request, &deadline).await;
            }
            self.read(&output.map_err(BackendError::from)?)
        })
    }
}

impl fmt::Debug for ConverseGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConverseGenerator")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn message(role: ConversationRole, content: Vec<ContentBlock>) -> Result<Message, BuildError> {
    Message::builder()
        .role(role)
        .set_content(Some(content))
        .build()
}

/// A part that the guardrail looks at; the qualifier tells it what the answer is checked against.
fn guarded(
    text: &str,
    qualifier: GuardrailConverseContentQualifier,
) -> Result<ContentBlock, BuildError> {
    let block = GuardrailConverseTextBlock::builder()
        .text(text)
        .qualifiers(qualifier)
        .qualifiers(GuardrailConverseContentQualifier::GuardContent)
        .build()?;
    Ok(ContentBlock::GuardContent(
        GuardrailConverseContentBlock::Text(block),
    ))
}

fn usage(usage: &TokenUsage) -> Option<Usage> {
    Some(Usage {
        input_tokens: u64::try_from(usage.input_tokens()).ok()?,
        output_tokens: u64::try_from(usage.output_tokens()).ok()?,
    })
}

fn unwritable(error: &BuildError) -> CallError {
    BackendError::Refused(format!("the request cannot be written: {error}")).into()
}

#[cfg(test)]
mod tests;
