//! The operations that [`crate::ServiceClient`] can send: their types, and the SDK's own code that writes
//! and reads them.

use std::fmt;
use std::sync::OnceLock;

use aws_smithy_runtime_api::client::runtime_plugin::RuntimePlugin;
use aws_smithy_types::config_bag::{FrozenLayer, Layer};

#[cfg(feature = "s3")]
use crate::service::S3;
#[cfg(feature = "bedrock")]
use crate::service::{BedrockAgent, BedrockAgentRuntime, BedrockRuntime};
use crate::service::{DynamoDb, Sqs};
#[cfg(feature = "secrets")]
use crate::service::{SecretsManager, Ssm};

/// The input of an operation.
pub trait Operation: fmt::Debug + Send + Sync + 'static {
    /// The service that has it.
    type Service;
    /// What the service answers.
    type Output: fmt::Debug + Send + Sync + 'static;
    /// What the service refuses with.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Holds the SDK's serialiser and deserialiser.
    fn codec() -> &'static FrozenLayer;
}

macro_rules! operations {
    ($($service:ident $package:ident::$module:ident: $operation:ident $input:ident $output:ident $error:ident;)*) => {
        $(
            impl Operation for $package::operation::$module::$input {
                type Service = $service;
                type Output = $package::operation::$module::$output;
                type Error = $package::operation::$module::$error;

                fn codec() -> &'static FrozenLayer {
                    static CODEC: OnceLock<FrozenLayer> = OnceLock::new();
                    CODEC.get_or_init(|| codec_of(&$package::operation::$module::$operation::new()))
                }
            }
        )*
    };
}

operations! {
    DynamoDb aws_sdk_dynamodb::get_item: GetItem GetItemInput GetItemOutput GetItemError;
    DynamoDb aws_sdk_dynamodb::batch_get_item: BatchGetItem BatchGetItemInput BatchGetItemOutput BatchGetItemError;
    DynamoDb aws_sdk_dynamodb::query: Query QueryInput QueryOutput QueryError;
    DynamoDb aws_sdk_dynamodb::put_item: PutItem PutItemInput PutItemOutput PutItemError;
    DynamoDb aws_sdk_dynamodb::update_item: UpdateItem UpdateItemInput UpdateItemOutput UpdateItemError;
    DynamoDb aws_sdk_dynamodb::delete_item: DeleteItem DeleteItemInput DeleteItemOutput DeleteItemError;
    DynamoDb aws_sdk_dynamodb::transact_write_items:
        TransactWriteItems TransactWriteItemsInput TransactWriteItemsOutput TransactWriteItemsError;
    Sqs aws_sdk_sqs::send_message: SendMessage SendMessageInput SendMessageOutput SendMessageError;
    Sqs aws_sdk_sqs::send_message_batch:
        SendMessageBatch SendMessageBatchInput SendMessageBatchOutput SendMessageBatchError;
}

#[cfg(feature = "secrets")]
operations! {
    SecretsManager aws_sdk_secretsmanager::get_secret_value:
        GetSecretValue GetSecretValueInput GetSecretValueOutput GetSecretValueError;
}

#[cfg(feature = "secrets")]
impl Operation for aws_sdk_ssm::operation::get_parameter::GetParameterInput {
    type Service = Ssm;
    type Output = aws_sdk_ssm::operation::get_parameter::GetParameterOutput;
    type Error = aws_sdk_ssm::operation::get_parameter::GetParameterError;

    fn codec() -> &'static FrozenLayer {
        static CODEC: OnceLock<FrozenLayer> = OnceLock::new();
        CODEC.get_or_init(crate::parameter::codec)
    }
}

#[cfg(feature = "bedrock")]
operations! {
    BedrockAgent aws_sdk_bedrockagent::get_ingestion_job:
        GetIngestionJob GetIngestionJobInput GetIngestionJobOutput GetIngestionJobError;
    BedrockAgent aws_sdk_bedrockagent::get_knowledge_base:
        GetKnowledgeBase GetKnowledgeBaseInput GetKnowledgeBaseOutput GetKnowledgeBaseError;
    BedrockAgent aws_sdk_bedrockagent::list_data_sources:
        ListDataSources ListDataSourcesInput ListDataSourcesOutput ListDataSourcesError;
    BedrockAgent aws_sdk_bedrockagent::list_ingestion_jobs:
        ListIngestionJobs ListIngestionJobsInput ListIngestionJobsOutput ListIngestionJobsError;
    BedrockAgent aws_sdk_bedrockagent::list_knowledge_bases:
        ListKnowledgeBases ListKnowledgeBasesInput ListKnowledgeBasesOutput ListKnowledgeBasesError;
    BedrockAgent aws_sdk_bedrockagent::list_knowledge_base_documents:
        ListKnowledgeBaseDocuments ListKnowledgeBaseDocumentsInput ListKnowledgeBaseDocumentsOutput
        ListKnowledgeBaseDocumentsError;
    BedrockAgentRuntime aws_sdk_bedrockagentruntime::retrieve:
        Retrieve RetrieveInput RetrieveOutput RetrieveError;
    BedrockAgentRuntime aws_sdk_bedrockagentruntime::retrieve_and_generate:
        RetrieveAndGenerate RetrieveAndGenerateInput RetrieveAndGenerateOutput RetrieveAndGenerateError;
    BedrockRuntime aws_sdk_bedrockruntime::converse:
        Converse ConverseInput ConverseOutput ConverseError;
}

#[cfg(feature = "s3")]
operations! {
    S3 aws_sdk_s3::get_object: GetObject GetObjectInput GetObjectOutput GetObjectError;
}

fn codec_of(operation: &dyn RuntimePlugin) -> FrozenLayer {
    let config = operation.config();
    config.unwrap_or_else(|| Layer::new("an operation without a codec").freeze())
}
