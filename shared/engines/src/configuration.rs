//! Which engines a deployment has: one JSON object, from names to settings. It holds no credential,
//! only where each one is.

pub mod answers;
mod fields;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use http::{HeaderName, Uri};
use raglan_core::catalog::{BackendReference, KnowledgeBaseId};
use raglan_telemetry::settings::Settings;
use serde_json::{Map, Value};

use crate::call::{CredentialHeader, ExchangeLimits};
use crate::credentials::CredentialReference;

use self::fields::Fields;

/// `BACKENDS`: the JSON itself.
pub const INLINE: &str = "BACKENDS";
/// `BACKENDS_FILE`: path of a file with the JSON.
pub const FILE: &str = "BACKENDS_FILE";
const MAX_ENGINES: usize = 32;

/// The configured engines by name. A name is written like the id of a knowledge base.
pub type Configurations = BTreeMap<String, Configuration>;

/// One engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Where its credential is; `None` for an engine that asks for none.
    pub credential: Option<CredentialReference>,
    /// What one request may cost.
    pub limits: ExchangeLimits,
    /// How its documents' attributes are called.
    pub attributes: AttributeNames,
    /// The lowest score that counts as relevant, in the engine's own measure.
    pub score_threshold: Option<f32>,
    /// Which interface it has, and what belongs to that interface only.
    pub kind: Kind,
}

/// The interfaces, with their own settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `openai`: the read side of `/v1/vector_stores`.
    OpenAi(OpenAiSettings),
    /// `dify`: the knowledge API of Dify.
    Dify(DifySettings),
    /// `dify_external`: one endpoint, `POST /retrieval`, as Dify asks of external knowledge bases.
    DifyExternal(DifyExternalSettings),
    /// `ragflow`: the HTTP API of RAGFlow.
    RagFlow(RagFlowSettings),
    /// `bedrock`: knowledge bases of Amazon Bedrock, through the AWS SDK.
    Bedrock(BedrockSettings),
}

impl Kind {
    /// The name of the interface in the configuration.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::OpenAi(_) => "openai",
            Self::Dify(_) => "dify",
            Self::DifyExternal(_) => "dify_external",
            Self::RagFlow(_) => "ragflow",
            Self::Bedrock(_) => "bedrock",
        }
    }
}

/// `openai`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiSettings {
    /// With the version: `https://host/v1`.
    pub url: EngineUrl,
    /// The header that carries the credential.
    pub credential_header: CredentialHeader,
    /// Whether the engine rewrites the query before it searches.
    pub rewrite_query: bool,
    /// `ranking_options.ranker`; engines that refuse it are asked without.
    pub ranker: Option<String>,
    /// Whether search results carry the attributes of their documents, so that filters can be checked
    /// again.
    pub tells_metadata: bool,
}

/// `dify`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifySettings {
    /// With the version: `https://host/v1`.
    pub url: EngineUrl,
    /// `retrieval_model.search_method`.
    pub search_method: String,
    /// The reranking model; an engine that refuses it is asked without.
    pub rerank: Option<RerankModel>,
}

/// A reranking model of Dify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerankModel {
    /// `reranking_provider_name`
    pub provider: String,
    /// `reranking_model_name`
    pub model: String,
}

/// `dify_external`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifyExternalSettings {
    /// What comes before `/retrieval`.
    pub url: EngineUrl,
    /// The interface has no list of its own.
    pub knowledge_bases: Vec<ListedKnowledgeBase>,
    /// Whether the records' metadata holds what filters ask about, so that it can be checked again.
    pub tells_metadata: bool,
}

/// A knowledge base that the configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedKnowledgeBase {
    /// `knowledge_id`
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: Option<String>,
}

/// `ragflow`
#[derive(Debug, Clone, PartialEq)]
pub struct RagFlowSettings {
    /// Without `/api/v1`.
    pub url: EngineUrl,
    /// `vector_similarity_weight`: 0 is words only, 1 is vectors only.
    pub vector_weight: Option<f32>,
    /// `rerank_id`; an engine that refuses it is asked without.
    pub rerank: Option<String>,
    /// `keyword`: whether a model extracts keywords from the query.
    pub keyword: bool,
}

/// `bedrock`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BedrockSettings {
    /// The region of the knowledge bases; `None` for the function's own.
    pub region: Option<String>,
    /// Where the service's interfaces are, instead of AWS's own addresses.
    pub endpoint_url: Option<EngineUrl>,
    /// What the knowledge bases are; `None` when Bedrock is asked (`GetKnowledgeBase`).
    pub knowledge_base_type: Option<BedrockType>,
    /// `overrideSearchType`; a store that refuses it is asked without.
    pub search_type: Option<String>,
    /// ARN of the reranking model; where it is refused, the search is done without.
    pub rerank: Option<String>,
    /// The guardrail that looks at queries and passages.
    pub guardrail: Option<BedrockGuardrail>,
    /// Whether a passage's metadata holds what filters ask about, so that it can be checked again.
    pub tells_metadata: bool,
    /// The model with which Bedrock answers questions itself (`RetrieveAndGenerate`); `None` when it only
    /// searches.
    pub answer_model: Option<String>,
}

/// Who keeps the vectors of a knowledge base of Bedrock: searches are written differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BedrockType {
    /// `managed`: Bedrock does.
    Managed,
    /// `vector`: a store in the customer's account.
    Vector,
}

/// A guardrail of Amazon Bedrock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BedrockGuardrail {
    /// `guardrailIdentifier`
    pub id: String,
    /// `guardrailVersion`: a number, or `DRAFT`.
    pub version: String,
}

/// How an engine calls what raglan knows under a name of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributeNames {
    names: BTreeMap<&'static str, String>,
    /// How the engine writes moments.
    pub moments: MomentFormat,
}

/// How an engine writes moments in attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MomentFormat {
    /// A number of seconds since 1970.
    #[default]
    EpochSeconds,
    /// A number of milliseconds since 1970.
    EpochMilliseconds,
    /// A text as in RFC 3339, in UTC.
    Rfc3339,
    /// A text `YYYY-MM-DD`.
    Date,
}

impl AttributeNames {
    /// The reserved attributes, as our contract calls them.
    pub const RESERVED: [&'static str; 9] = [
        "uri",
        "title",
        "page",
        "section",
        "updated_at",
        "doc_type",
        "domain",
        "lang",
        "chunk_index",
    ];

    /// The engine's name of a reserved attribute.
    #[must_use]
    pub fn of<'a>(&'a self, reserved: &'a str) -> &'a str {
        self.names.get(reserved).map_or(reserved, String::as_str)
    }
}

/// Where an engine is: `https`, or `http` on this machine; without user, query and fragment, and
/// without a `/` at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineUrl(String);

impl EngineUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is expected. The text itself is not repeated: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "an https URL (http on this machine only)";
        let uri: Uri = text.parse().map_err(|_| EXPECTED)?;
        let (scheme, authority) = (uri.scheme_str(), uri.authority());
        let Some(authority) = authority else {
            return Err(EXPECTED);
        };
        if authority.as_str().contains('@') {
            return Err("a URL without user and password; name the credential in `credential`");
        }
        if text.contains(['?', '#']) {
            return Err("a URL without query and fragment");
        }
        match scheme {
            Some("https") => {}
            Some("http") if is_loopback(authority.host()) => {}
            _ => return Err(EXPECTED),
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address.eq_ignore_ascii_case("localhost")
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Reads `BACKENDS` or `BACKENDS_FILE` and notes every problem there is.
pub fn from_settings<L: Fn(&str) -> Option<String>>(settings: &mut Settings<L>) -> Configurations {
    let (name, text) = match (settings.get(INLINE), settings.get(FILE)) {
        (None, None) => return Configurations::new(),
        (Some(text), None) => (INLINE, text),
        (None, Some(path)) => match std::fs::read_to_string(path.trim()) {
            Ok(text) => (FILE, text),
            Err(error) => {
                settings.problem(format!("{FILE} cannot be read: {error}"));
                return Configurations::new();
            }
        },
        (Some(_), Some(_)) => {
            settings.problem(format!("{INLINE} and {FILE} are both set"));
            return Configurations::new();
        }
    };
    match parse(&text) {
        Ok(configurations) => configurations,
        Err(problems) => {
            for problem in problems {
                settings.problem(format!("{name}: {problem}"));
            }
            Configurations::new()
        }
    }
}

/// Reads the JSON.
///
/// # Errors
/// Every problem there is, one sentence each, none with a value of the configuration in it.
pub fn parse(text: &str) -> Result<Configurations, Vec<String>> {
    let engines: Map<String, Value> = match serde_json::from_str(text) {
        Ok(engines) => engines,
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            return Err(vec![format!(
                "is no JSON object from names to engines ({place})"
            )]);
        }
    };
    let mut problems = Vec::new();
    if engines.len() > MAX_ENGINES {
        problems.push(format!("has more than {MAX_ENGINES} engines"));
    }
    let mut configurations = Configurations::new();
    for (name, value) in engines {
        if KnowledgeBaseId::parse(&name).is_err() || name == BackendReference::EMBEDDED {
            problems.push(format!(
                "the name {name:?} is not 1 to 64 of a-z, 0-9, '_' and '-', or is taken"
            ));
            continue;
        }
        let Value::Object(values) = value else {
            problems.push(format!("{name} is no object"));
            continue;
        };
        let mut fields = Fields::new(name.clone(), values, &mut problems);
        let configuration = configuration(&mut fields);
        fields.finish();
        if let Some(configuration) = configuration {
            configurations.insert(name, configuration);
        }
    }
    if problems.is_empty() {
        Ok(configurations)
    } else {
        Err(problems)
    }
}

fn configuration(fields: &mut Fields<'_>) -> Option<Configuration> {
    let kind = match fields.deciding_text("type")?.as_str() {
        "openai" => Kind::OpenAi(OpenAiSettings {
            url: url(fields),
            credential_header: credential_header(fields),
            rewrite_query: fields.switch("rewrite_query", false),
            ranker: fields.text("ranker"),
            tells_metadata: fields.switch("tells_metadata", true),
        }),
        "dify" => Kind::Dify(DifySettings {
            url: url(fields),
            search_method: fields.word(
                "search_method",
                &[
                    "hybrid_search",
                    "semantic_search",
                    "full_text_search",
                    "keyword_search",
                ],
            ),
            rerank: rerank_model(fields),
        }),
        "dify_external" => Kind::DifyExternal(DifyExternalSettings {
            url: url(fields),
            knowledge_bases: listed_knowledge_bases(fields),
            tells_metadata: fields.switch("tells_metadata", true),
        }),
        "ragflow" => Kind::RagFlow(RagFlowSettings {
            url: url(fields),
            vector_weight: fields.decimal("vector_weight", 0.0, 1.0),
            rerank: fields.text("rerank"),
            keyword: fields.switch("keyword", false),
        }),
        "bedrock" => Kind::Bedrock(bedrock(fields)),
        _ => {
            fields.give_up("type", "openai, dify, dify_external, ragflow or bedrock");
            return None;
        }
    };
    let credential = credential(fields);
    if credential.is_some() && matches!(kind, Kind::Bedrock(_)) {
        fields.problem(
            "credential",
            "Bedrock is asked with the role of the function",
        );
    }
    Some(Configuration {
        credential,
        limits: ExchangeLimits {
            attempt_timeout: Duration::from_secs(fields.number(
                "request_timeout_seconds",
                10,
                1,
                300,
            )),
            response_max_bytes: usize::try_from(fields.number(
                "response_max_bytes",
                4 * 1024 * 1024,
                16 * 1024,
                32 * 1024 * 1024,
            ))
            .unwrap_or(usize::MAX),
        },
        attributes: attribute_names(fields),
        score_threshold: fields.decimal("score_threshold", 0.0, 1.0),
        kind,
    })
}

fn bedrock(fields: &mut Fields<'_>) -> BedrockSettings {
    let endpoint_url = fields.text("endpoint_url");
    let endpoint_url = endpoint_url.and_then(|text| match EngineUrl::parse(&text) {
        Ok(url) => Some(url),
        Err(expected) => {
            fields.problem("endpoint_url", &format!("expected {expected}"));
            None
        }
    });
    let knowledge_base_type = match fields
        .word("knowledge_base_type", &["ask", "managed", "vector"])
        .as_str()
    {
        "managed" => Some(BedrockType::Managed),
        "vector" => Some(BedrockType::Vector),
        _ => None,
    };
    let search_type = match fields
        .word("search_type", &["default", "hybrid", "semantic"])
        .as_str()
    {
        "hybrid" => Some("HYBRID".to_owned()),
        "semantic" => Some("SEMANTIC".to_owned()),
        _ => None,
    };
    BedrockSettings {
        region: fields.text("region"),
        endpoint_url,
        knowledge_base_type,
        search_type,
        rerank: fields.text("rerank"),
        guardrail: guardrail(fields),
        tells_metadata: fields.switch("tells_metadata", true),
        answer_model: fields.text("answer_model"),
    }
}

fn guardrail(fields: &mut Fields<'_>) -> Option<BedrockGuardrail> {
    let mut inner = fields.object("guardrail")?;
    let guardrail = (inner.required_text("id"), inner.required_text("version"));
    inner.finish();
    let (Some(id), Some(version)) = guardrail else {
        return None;
    };
    Some(BedrockGuardrail { id, version })
}

/// Where that is a problem, a place that nobody asks: the other fields are read all the same, so that
/// all their problems are told at once.
fn url(fields: &mut Fields<'_>) -> EngineUrl {
    let text = fields.required_text("url");
    match text.map(|text| EngineUrl::parse(&text)) {
        Some(Ok(url)) => return url,
        Some(Err(expected)) => fields.problem("url", &format!("expected {expected}")),
        None => {}
    }
    EngineUrl("https://nowhere.invalid".to_owned())
}

fn credential(fields: &mut Fields<'_>) -> Option<CredentialReference> {
    let text = fields.text("credential")?;
    match CredentialReference::parse(&text) {
        Ok(reference) => Some(reference),
        Err(error) => {
            fields.problem("credential", &error.to_string());
            None
        }
    }
}

fn credential_header(fields: &mut Fields<'_>) -> CredentialHeader {
    let Some(text) = fields.text("credential_header") else {
        return CredentialHeader::Bearer;
    };
    match HeaderName::try_from(&text) {
        Ok(http::header::AUTHORIZATION) => CredentialHeader::Bearer,
        Ok(name) => CredentialHeader::Plain(name),
        Err(_) => {
            fields.problem("credential_header", "expected the name of a header");
            CredentialHeader::Bearer
        }
    }
}

fn rerank_model(fields: &mut Fields<'_>) -> Option<RerankModel> {
    let mut inner = fields.object("rerank")?;
    let model = (
        inner.required_text("provider"),
        inner.required_text("model"),
    );
    inner.finish();
    let (Some(provider), Some(model)) = model else {
        return None;
    };
    Some(RerankModel { provider, model })
}

fn listed_knowledge_bases(fields: &mut Fields<'_>) -> Vec<ListedKnowledgeBase> {
    let mut listed = Vec::new();
    fields.each_object("knowledge_bases", |inner| {
        let id = inner.required_text("id");
        let name = inner.text("name");
        let description = inner.text("description");
        if let Some(id) = id {
            listed.push(ListedKnowledgeBase {
                name: name.unwrap_or_else(|| id.clone()),
                id,
                description,
            });
        }
    });
    listed
}

fn attribute_names(fields: &mut Fields<'_>) -> AttributeNames {
    let moments = match fields
        .word(
            "moments",
            &["epoch_seconds", "epoch_milliseconds", "rfc3339", "date"],
        )
        .as_str()
    {
        "epoch_milliseconds" => MomentFormat::EpochMilliseconds,
        "rfc3339" => MomentFormat::Rfc3339,
        "date" => MomentFormat::Date,
        _ => MomentFormat::EpochSeconds,
    };
    let mut names = BTreeMap::new();
    if let Some(mut inner) = fields.object("fields") {
        for reserved in AttributeNames::RESERVED {
            if let Some(name) = inner.text(reserved) {
                names.insert(reserved, name);
            }
        }
        inner.finish();
    }
    AttributeNames { names, moments }
}

#[cfg(test)]
mod tests;
