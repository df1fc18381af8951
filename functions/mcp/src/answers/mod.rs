//! Answers that a language model writes from passages, where one is configured.
//!
//! | module | what it is |
//! |---|---|
//! | [`prompt`] | what the model is asked |
//! | [`conversation`] | the turns before |
//!
//! What the model writes is believed as far as it can be checked: it must cite passages that it was
//! given and name no address that stands in none of them. Whatever goes wrong, the caller of this module
//! falls back to sentences from the documents, within the call's time.

pub mod conversation;
pub mod prompt;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "bedrock")]
use raglan_bedrock::converse::ConverseGenerator;
use raglan_core::ids;
use raglan_core::random::RandomUnavailable;
use raglan_engines::call::Surroundings;
use raglan_engines::chat::ChatGenerator;
use raglan_engines::configuration::answers::{AnswerConfiguration, Model};
use raglan_guard::SecuritySummary;
use raglan_rag::backend::EngineCall;
use raglan_rag::generate::{Generation, GenerationError, Generator, Stopped, Usage};
use raglan_rag::generated::{
    NO_ANSWER, check_citations, foreign_address, says_no_answer, whole_sentences, without_thinking,
};
use raglan_telemetry::settings::BadSettings;
use raglan_texts::{Language, text};
use tokio::time::Instant;

use self::prompt::{Material, PromptLimits};
use crate::tools::search::EngineText;
use crate::tools::{Size, ToolCall};

/// Left of a call's time for what comes after the model.
const RESERVED_FOR_THE_REST: Duration = Duration::from_millis(300);
/// With less time than this the model is not asked.
const GENERATION_MIN: Duration = Duration::from_secs(1);

/// Writes answers.
pub struct Answers {
    writer: Option<Writer>,
}

struct Writer {
    generator: Arc<dyn Generator>,
    limits: PromptLimits,
}

impl Answers {
    /// What the configuration names. Nothing is asked of the network here.
    ///
    /// # Errors
    /// [`BadSettings`] when there is no adapter for it.
    pub fn from_config(
        configuration: Option<&AnswerConfiguration>,
        surroundings: &Surroundings,
    ) -> Result<Self, BadSettings> {
        let Some(configuration) = configuration else {
            return Ok(Self::extractive());
        };
        let generator: Arc<dyn Generator> = match &configuration.model {
            Model::Chat(settings) => Arc::new(ChatGenerator::new(
                settings.clone(),
                configuration.temperature,
                surroundings.clone(),
            )),
            #[cfg(feature = "bedrock")]
            Model::Bedrock(settings) => Arc::new(ConverseGenerator::new(
                settings.clone(),
                configuration.temperature,
                surroundings,
            )),
            #[cfg(not(feature = "bedrock"))]
            Model::Bedrock(_) => {
                let problem = "ANSWERS.type: this build has no adapter for bedrock";
                return Err(BadSettings(vec![problem.to_owned()]));
            }
        };
        let limits = PromptLimits {
            passages_max_tokens: configuration.passages_max_tokens,
            answer_max_tokens: configuration.max_tokens,
        };
        Ok(Self::generated(generator, limits))
    }

    /// No model: answers are sentences from the documents.
    #[must_use]
    pub const fn extractive() -> Self {
        Self { writer: None }
    }

    /// Answers from this model.
    #[must_use]
    pub fn generated(generator: Arc<dyn Generator>, limits: PromptLimits) -> Self {
        Self {
            writer: Some(Writer { generator, limits }),
        }
    }

    /// Until when a search may take: the rest of the call's time is the model's, where there is one.
    #[must_use]
    pub fn search_until(&self, call: &ToolCall<'_>) -> Instant {
        match self.writer {
            // The model takes longer than engines do; one of those that hangs must not use up its time.
            Some(_) => Instant::now() + call.time_left() * 2 / 5,
            None => call.engines_until,
        }
    }

    /// Lets the model write an answer that fits into `room`; `None` where there is no model, or nothing
    /// to write from.
    ///
    /// # Errors
    /// [`RandomUnavailable`] when the passages cannot be enclosed.
    pub async fn write(
        &self,
        call: &ToolCall<'_>,
        material: Material<'_>,
        room: Size,
    ) -> Result<Option<Written>, RandomUnavailable> {
        let Some(writer) = &self.writer else {
            return Ok(None);
        };
        if material.passages.is_empty() {
            return Ok(None);
        }
        writer.write(call, material, room).await.map(Some)
    }
}

/// What came of asking the model.
#[derive(Debug)]
pub enum Written {
    /// An answer.
    Answer(GeneratedAnswer),
    /// The model says that the passages do not answer the question.
    NoAnswer(Origin),
    /// A content filter or a guardrail withheld the answer.
    Withheld(Origin),
    /// Nothing that can be given to a caller.
    Nothing(Unusable),
}

/// An answer whose citations were checked.
#[derive(Debug)]
pub struct GeneratedAnswer {
    /// The text, guarded. `[n]` stands for the passage `cited[n - 1]`.
    pub text: String,
    /// Indexes of the passages that it cites.
    pub cited: Vec<usize>,
    /// How many citations of passages that were not given were taken out.
    pub invented: usize,
    /// Whether its end is missing.
    pub truncated: bool,
    /// Who wrote it.
    pub origin: Origin,
    /// What the guard found in the passages and in the text.
    pub security: SecuritySummary,
}

/// Who wrote something, and what it cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The model.
    pub model: String,
    /// What it cost, where the model tells.
    pub usage: Option<Usage>,
}

/// Why there is no answer of the model's.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The search left no time for it.
    #[error("the search left no time for the model")]
    NoTime,
    /// The model wrote nothing.
    #[error(transparent)]
    Generation(#[from] GenerationError),
    /// Its text was empty, or nothing but thinking.
    #[error("the model wrote no text")]
    Empty,
    /// Its text cites none of the passages; so many citations named others.
    #[error("the model cited no passage that it was given ({invented} others)")]
    Uncited {
        /// How many.
        invented: usize,
    },
    /// Its text names an address that stands in no passage and not in the question.
    #[error("the model named an address that stands in no passage")]
    ForeignAddress,
}

impl Unusable {
    /// What the caller is told.
    #[must_use]
    pub fn told(&self, language: Language) -> &'static str {
        match self {
            Self::NoTime | Self::Generation(GenerationError::TimedOut(_)) => text!(
                language,
                "The language model did not answer in time; sentences from the documents were looked for \
                 instead."
            ),
            Self::Generation(_) => text!(
                language,
                "The language model could not be used; sentences from the documents were looked for instead."
            ),
            Self::Empty | Self::Uncited { .. } => text!(
                language,
                "The language model cited no passage; sentences from the documents were looked for instead."
            ),
            Self::ForeignAddress => text!(
                language,
                "The language model named an address that stands in no passage; sentences from the documents \
                 were looked for instead."
            ),
        }
    }
}

impl Writer {
    async fn write(
        &self,
        call: &ToolCall<'_>,
        material: Material<'_>,
        room: Size,
    ) -> Result<Written, RandomUnavailable> {
        let time_left = call.time_left().saturating_sub(RESERVED_FOR_THE_REST);
        if time_left < GENERATION_MIN {
            return Ok(unusable(Unusable::NoTime));
        }
        let (language, guard) = (call.services.language, call.services.guard);
        let boundary = ids::random_hex::<16>(call.services.random.as_ref())?;
        let mut security = SecuritySummary::new(language);
        let prompt = prompt::write(
            material,
            self.limits,
            language,
            guard,
            &boundary,
            &mut security,
        );
        let engine_call = EngineCall {
            time_left,
            ..call.engine_call()
        };
        let work = self.generator.generate(&prompt.request, &engine_call);
        let generated = tokio::time::timeout(time_left, work).await;
        let generated = generated.unwrap_or(Err(GenerationError::TimedOut(time_left)));
        let generation = match generated {
            Ok(generation) => generation,
            Err(error) => return Ok(unusable(error.into())),
        };
        let usage = generation.usage;
        tracing::info!(
            model = generation.model,
            input_tokens = usage.map(|usage| usage.input_tokens),
            output_tokens = usage.map(|usage| usage.output_tokens),
            stopped = ?generation.stopped,
            "a model was asked for an answer"
        );
        let given = Material {
            passages: &material.passages[..prompt.given],
            ..material
        };
        Ok(judge(&generation, call, given, room, security))
    }
}

/// An answer that an engine wrote itself, judged as a model's is.
#[must_use]
pub fn written_by_engine(
    written: EngineText,
    call: &ToolCall<'_>,
    material: Material<'_>,
    room: Size,
) -> Written {
    let generation = Generation {
        text: written.text,
        stopped: Stopped::Finished,
        model: written.model,
        usage: None,
    };
    let security = SecuritySummary::new(call.services.language);
    judge(&generation, call, material, room, security)
}

/// What can be given to the caller of what was written from these passages.
fn judge(
    generation: &Generation,
    call: &ToolCall<'_>,
    given: Material<'_>,
    room: Size,
    mut security: SecuritySummary,
) -> Written {
    let origin = Origin {
        model: generation.model.clone(),
        usage: generation.usage,
    };
    let text = match read(generation, given) {
        Ok(Text::NoAnswer) => return Written::NoAnswer(origin),
        Ok(Text::Withheld) => return Written::Withheld(origin),
        Ok(Text::Cited(text)) => text,
        Err(why) => return unusable(why),
    };
    finish(&text, given.passages.len(), call, room).map_or_else(unusable, |done| {
        security.add(&done.guarded);
        Written::Answer(GeneratedAnswer {
            text: done.guarded.text,
            cited: done.cited,
            invented: done.invented,
            truncated: done.truncated || generation.stopped == Stopped::TooLong,
            origin,
            security,
        })
    })
}

fn unusable(why: Unusable) -> Written {
    tracing::warn!(error = %why, "an answer is extractive, because the model's cannot be used");
    Written::Nothing(why)
}

/// What a model's text is.
#[derive(Debug, PartialEq, Eq)]
enum Text {
    /// It cites at least one passage, as the model numbers them, and names no foreign address.
    Cited(String),
    NoAnswer,
    Withheld,
}

/// Judges what the model wrote, against what it was given.
fn read(generation: &Generation, material: Material<'_>) -> Result<Text, Unusable> {
    if generation.stopped == Stopped::Withheld {
        return Ok(Text::Withheld);
    }
    let mut text = without_thinking(&generation.text);
    if generation.stopped == Stopped::TooLong {
        text.truncate(whole_sentences(&text).len());
    }
    if text.is_empty() {
        return Err(Unusable::Empty);
    }
    let checked = check_citations(&text, material.passages.len());
    if checked.citations.is_empty() {
        if says_no_answer(&text) {
            return Ok(Text::NoAnswer);
        }
        let invented = checked.invented;
        return Err(Unusable::Uncited { invented });
    }
    let mut known = vec![material.question];
    for scored in material.passages {
        let passage = &scored.passage;
        known.extend([passage.content.as_str(), &passage.title, &passage.filename]);
        known.extend(passage.uri.as_deref());
    }
    if foreign_address(&text, &known).is_some() {
        return Err(Unusable::ForeignAddress);
    }
    Ok(Text::Cited(text.replace(NO_ANSWER, "")))
}

struct Finished {
    guarded: raglan_guard::Guarded,
    cited: Vec<usize>,
    invented: usize,
    truncated: bool,
}

/// The text with checked citations, guarded, and so long as there is room for it.
fn finish(text: &str, given: usize, call: &ToolCall<'_>, room: Size) -> Result<Finished, Unusable> {
    let mut kept = room.beginning_of(text);
    loop {
        let checked = check_citations(kept, given);
        if checked.citations.is_empty() {
            let invented = checked.invented;
            return Err(Unusable::Uncited { invented });
        }
        let guarded = call.services.guard.sanitize(&checked.text);
        if room.without(Size::of(guarded.text.as_str())).is_some() {
            return Ok(Finished {
                guarded,
                cited: checked.citations,
                invented: checked.invented,
                truncated: kept.len() < text.len(),
            });
        }
        kept = &kept[..kept.floor_char_boundary(kept.len() / 2)];
    }
}

#[cfg(test)]
mod tests;
