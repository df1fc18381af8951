//! `RetrieveAndGenerate`: Bedrock searches a knowledge base and answers with one of its models.
//! <https://docs.aws.amazon.com/bedrock/latest/APIReference/API_agent-runtime_RetrieveAndGenerate.html>

use aws_sdk_bedrockagentruntime::operation::retrieve_and_generate::{
    self as operation, RetrieveAndGenerateOutput,
};
use aws_sdk_bedrockagentruntime::types::{
    Citation, GenerationConfiguration, GuadrailAction,
    KnowledgeBaseRetrieveAndGenerateConfiguration, RetrieveAndGenerateConfiguration,
    RetrieveAndGenerateInput, RetrieveAndGenerateType,
};
use aws_smithy_types::error::operation::BuildError;
use raglan_aws::CallLimits;
use raglan_engines::call::CallError;
use raglan_engines::configuration::AttributeNames;
use raglan_engines::hits::retrieval;
use raglan_rag::backend::{
    BackendError, EngineAnswer, EngineCall, Note, Passage, Retrieval, RetrieveRequest,
};

use crate::backend::{BedrockBackend, Reference};
use crate::exchange::Deadline;
use crate::passages::passage;
use crate::retrieval::{Wishes, guardrail, unwritable};

/// `input.text`
const QUESTION_MAX_CHARS: usize = 1_000;

impl BedrockBackend {
    /// `None` without a model for answers, and for a question that is too long.
    pub(crate) async fn retrieve_and_generate(
        &self,
        knowledge_base: &str,
        request: &RetrieveRequest,
        call: &EngineCall,
    ) -> Result<Option<EngineAnswer>, BackendError> {
        let Some(model) = &self.settings.answer_model else {
            return Ok(None);
        };
        if request.query.chars().count() > QUESTION_MAX_CHARS {
            return Ok(None);
        }
        let reference = Reference::parse(knowledge_base)?;
        let deadline = Deadline::of(call, self.limits);
        let output = self.generate(&reference, request, model, &deadline).await;
        let output = output.map_err(|error| error.about(knowledge_base))?;
        let intervened = output.guardrail_action();
        if intervened.is_some_and(|action| *action != GuadrailAction::None) {
            return Ok(Some(EngineAnswer {
                text: None,
                model: model.clone(),
                retrieval: Retrieval {
                    notes: vec![Note::Withheld],
                    ..Retrieval::default()
                },
            }));
        }
        let text = output.output().map_or("", |output| output.text());
        let (text, passages) = with_citations(text, output.citations(), &self.attributes);
        let count = passages.len();
        Ok(Some(EngineAnswer {
            text: Some(text),
            model: model.clone(),
            retrieval: retrieval(passages, None, count),
        }))
    }

    async fn generate(
        &self,
        reference: &Reference<'_>,
        request: &RetrieveRequest,
        model: &str,
        deadline: &Deadline,
    ) -> Result<RetrieveAndGenerateOutput, CallError> {
        let (kind, _) = self.kind(reference.knowledge_base, deadline).await?;
        // A refused setting would cost a second answer: it is not asked for.
        let wishes = Wishes {
            rerank: None,
            search_type: self.settings.search_type.as_deref(),
        };
        let search = self.configuration(kind, reference, request, wishes)?;
        let guardrail = guardrail(self.settings.guardrail.as_ref())?.map(|guardrail| {
            GenerationConfiguration::builder()
                .guardrail_configuration(guardrail)
                .build()
        });
        let configuration = KnowledgeBaseRetrieveAndGenerateConfiguration::builder()
            .knowledge_base_id(reference.knowledge_base)
            .model_arn(model)
            .set_retrieval_configuration(search)
            .set_generation_configuration(guardrail)
            .build()
            .and_then(|knowledge_base| {
                RetrieveAndGenerateConfiguration::builder()
                    .r#type(RetrieveAndGenerateType::KnowledgeBase)
                    .knowledge_base_configuration(knowledge_base)
                    .build()
            })
            .map_err(|error: BuildError| unwritable(&error))?;
        let question = RetrieveAndGenerateInput::builder()
            .text(&request.query)
            .build()
            .map_err(|error| unwritable(&error))?;
        // Repeating a request that a model has worked on would cost as much again.
        let limits = CallLimits {
            attempts: 1,
            ..deadline.bounds()?
        };
        let request = operation::RetrieveAndGenerateInput::builder()
            .input(question)
            .retrieve_and_generate_configuration(configuration)
            .build();
        let client = self.connection.runtime().await;
        let guard = &self.connection.runtime_guard;
        guard
            .run(
                "RetrieveAndGenerate",
                limits.time,
                client.send_within(request, &limits),
            )
            .await
    }
}

/// The text with `[n]` behind each part that is cited, and the passages that the numbers stand for. A
/// part is looked for where the one before it ends; one that is not found keeps no citation.
fn with_citations(
    text: &str,
    citations: &[Citation],
    names: &AttributeNames,
) -> (String, Vec<Passage>) {
    let mut passages: Vec<Passage> = Vec::new();
    let mut marked = String::with_capacity(text.len() + 4 * citations.len());
    let mut rest = text;
    for citation in citations {
        let part = citation
            .generated_response_part()
            .and_then(|part| part.text_response_part()?.text())
            .unwrap_or_default()
            .trim_end();
        let Some(start) = rest.find(part).filter(|_| !part.is_empty()) else {
            continue;
        };
        let (before, behind) = rest.split_at(start + part.len());
        marked.push_str(before);
        rest = behind;
        for reference in citation.retrieved_references() {
            let Some(passage) = passage(&reference.into(), names) else {
                continue;
            };
            let known = passages.iter().position(|known| known.id == passage.id);
            let at = known.unwrap_or_else(|| {
                passages.push(passage);
                passages.len() - 1
            });
            let number = format!("[{}]", at + 1);
            if !marked.ends_with(&number) {
                marked.push_str(&number);
            }
        }
    }
    marked.push_str(rest);
    (marked, passages)
}

#[cfg(test)]
mod tests;
