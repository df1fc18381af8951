//! Which embedding model a deployment has.

use raglan_engines::configuration::EngineUrl;
use raglan_engines::credentials::CredentialReference;
use raglan_rag::embedded::embedding::Purpose;
use raglan_rag::embedded::vectors::DIMENSION_MAX;
use raglan_telemetry::settings::Settings;

/// `EMBEDDINGS_URL`: what comes before `/embeddings`.
pub const URL: &str = "EMBEDDINGS_URL";
/// `EMBEDDINGS_MODEL`: the model.
pub const MODEL: &str = "EMBEDDINGS_MODEL";
/// `EMBEDDINGS_CREDENTIAL`: where the credential is.
pub const CREDENTIAL: &str = "EMBEDDINGS_CREDENTIAL";
/// `EMBEDDINGS_PURPOSE`: how the model is told a query from a passage.
pub const PURPOSE: &str = "EMBEDDINGS_PURPOSE";
/// `EMBEDDINGS_DIMENSION`: the length of the vectors, where the model can make several.
pub const DIMENSION: &str = "EMBEDDINGS_DIMENSION";

/// The model and how it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingsConfiguration {
    /// With the version: `https://host/v1`.
    pub url: EngineUrl,
    /// The model's name.
    pub model: String,
    /// Where its credential is; `None` for a server that asks for none.
    pub credential: Option<CredentialReference>,
    /// How it is told a query from a passage.
    pub purpose: PurposeStyle,
    /// The length of the vectors; `None` is the model's own.
    pub dimension: Option<usize>,
}

/// How a model is told a query from a passage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PurposeStyle {
    /// `none`: not at all; the models of OpenAI make no difference.
    #[default]
    None,
    /// `prefix`: by `query: ` and `passage: ` in front of the text, as the E5 models ask.
    Prefix,
    /// `input_type`: by that field of the request, `query` or `passage`, as NVIDIA NIM has it.
    InputType,
}

impl PurposeStyle {
    /// What stands in front of a text.
    #[must_use]
    pub const fn prefix(self, purpose: Purpose) -> &'static str {
        match (self, purpose) {
            (Self::Prefix, Purpose::Query) => "query: ",
            (Self::Prefix, Purpose::Passage) => "passage: ",
            (Self::None | Self::InputType, _) => "",
        }
    }

    /// The request's `input_type`.
    #[must_use]
    pub const fn input_type(self, purpose: Purpose) -> Option<&'static str> {
        match (self, purpose) {
            (Self::InputType, Purpose::Query) => Some("query"),
            (Self::InputType, Purpose::Passage) => Some("passage"),
            (Self::None | Self::Prefix, _) => None,
        }
    }
}

/// Reads the variables and notes every problem there is; `None` when none of them is set.
pub fn from_settings<L: Fn(&str) -> Option<String>>(
    settings: &mut Settings<L>,
) -> Option<EmbeddingsConfiguration> {
    let (url, model) = (settings.get(URL), settings.get(MODEL));
    let credential = settings.get(CREDENTIAL);
    let purpose = purpose(settings);
    let dimension = settings.number(DIMENSION, 0, 0, DIMENSION_MAX);
    let (url, model) = match (url, model) {
        (Some(url), Some(model)) => (url, model.trim().to_owned()),
        (None, None) => return None,
        (Some(_), None) => {
            settings.problem(format!("{URL} is set, but {MODEL} is not"));
            return None;
        }
        (None, Some(_)) => {
            settings.problem(format!("{MODEL} is set, but {URL} is not"));
            return None;
        }
    };
    let url = EngineUrl::parse(url.trim());
    if let Err(expected) = &url {
        settings.problem(format!("{URL} cannot be used, expected {expected}"));
    }
    let credential = credential.map(|text| CredentialReference::parse(text.trim()));
    if let Some(Err(expected)) = &credential {
        settings.problem(format!("{CREDENTIAL} cannot be used, {expected}"));
    }
    Some(EmbeddingsConfiguration {
        url: url.ok()?,
        model,
        credential: credential.transpose().ok()?,
        purpose,
        dimension: (dimension > 0).then_some(dimension),
    })
}

fn purpose<L: Fn(&str) -> Option<String>>(settings: &mut Settings<L>) -> PurposeStyle {
    match settings.text(PURPOSE, "none").trim() {
        "none" => PurposeStyle::None,
        "prefix" => PurposeStyle::Prefix,
        "input_type" => PurposeStyle::InputType,
        other => {
            settings.problem(format!(
                "{PURPOSE} is {other:?}, expected none, prefix or input_type"
            ));
            PurposeStyle::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<EmbeddingsConfiguration>, String> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut settings = Settings::new(lookup);
        let configuration = from_settings(&mut settings);
        let read = settings.finish(configuration);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn without_variables_there_is_no_model() {
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn every_bad_variable_is_named_and_no_credential_is_repeated() {
        let error = read(&[
            (URL, "http://models.example/v1"),
            (MODEL, "m"),
            (CREDENTIAL, "sk-secret"),
            (PURPOSE, "both"),
            (DIMENSION, "-1"),
        ]);
        let error = error.unwrap_err();
        for name in [URL, CREDENTIAL, PURPOSE, DIMENSION] {
            assert!(error.contains(name), "{name}: {error}");
        }
        assert!(!error.contains("sk-secret"), "{error}");
        assert!(read(&[(MODEL, "m")]).unwrap_err().contains(URL));
        let url = (URL, "https://models.example/v1");
        assert!(read(&[url]).unwrap_err().contains(MODEL));
        let good = read(&[url, (MODEL, "m"), (DIMENSION, "256")]);
        assert_eq!(good.unwrap().unwrap().dimension, Some(256));
    }
}
