//! `GetParameter` of Systems Manager in our own JSON.
//!
//! The SDK reads this service through tables of all its errors, which are 0.3 MB of a program; one operation needs
//! four names.

use aws_sdk_ssm::operation::get_parameter::{
    GetParameterError, GetParameterInput, GetParameterOutput,
};
use aws_sdk_ssm::types::Parameter;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::context::{Error, Input, Output, OutputOrError};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse, OrchestratorError};
use aws_smithy_runtime_api::client::ser_de::{
    DeserializeResponse, SerializeRequest, SharedRequestSerializer, SharedResponseDeserializer,
};
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::config_bag::{ConfigBag, FrozenLayer, Layer};
use aws_smithy_types::error::ErrorMetadata;
use http::{Method, Request, header};
use serde::{Deserialize, Serialize};

use crate::refusal::{ERROR_TYPE, Refusal};

/// The serialiser and the deserialiser.
pub(crate) fn codec() -> FrozenLayer {
    let mut layer = Layer::new("GetParameter");
    layer.store_put(SharedRequestSerializer::new(Codec));
    layer.store_put(SharedResponseDeserializer::new(Codec));
    layer.freeze()
}

#[derive(Debug)]
struct Codec;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Asked<'a> {
    name: Option<&'a str>,
    with_decryption: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    parameter: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Value {
    value: Option<String>,
}

impl SerializeRequest for Codec {
    fn serialize_input(&self, input: Input, _: &mut ConfigBag) -> Result<HttpRequest, BoxError> {
        let input = input.downcast::<GetParameterInput>();
        let input = input.map_err(|_| "the input is another operation's")?;
        let asked = Asked {
            name: input.name(),
            with_decryption: input.with_decryption(),
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri("/")
            .header(header::CONTENT_TYPE, "application/x-amz-json-1.1")
            .header("x-amz-target", "AmazonSSM.GetParameter")
            .body(SdkBody::from(serde_json::to_vec(&asked)?))?;
        Ok(HttpRequest::try_from(request)?)
    }
}

impl DeserializeResponse for Codec {
    fn deserialize_nonstreaming_with_config(
        &self,
        response: &HttpResponse,
        _: &ConfigBag,
    ) -> OutputOrError {
        let body = response.body().bytes().unwrap_or_default();
        if !response.status().is_success() {
            let refusal = Refusal::read(response.headers().get(ERROR_TYPE.as_str()), body);
            let mut told = ErrorMetadata::builder();
            if let Some(code) = refusal.code {
                told = told.code(code);
            }
            if let Some(message) = refusal.message {
                told = told.message(message);
            }
            let error = GetParameterError::generic(told.build());
            return Err(OrchestratorError::operation(Error::erase(error)));
        }
        let told: Told = serde_json::from_slice(body).map_err(OrchestratorError::other)?;
        let parameter = told
            .parameter
            .map(|parameter| Parameter::builder().set_value(parameter.value).build());
        let output = GetParameterOutput::builder().set_parameter(parameter);
        Ok(Output::erase(output.build()))
    }
}
