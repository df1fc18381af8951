//! The operations that [`crate::ServiceClient`] can send: their types, and the SDK's own code that writes
//! and reads them.

use std::fmt;
use std::sync::OnceLock;

use aws_smithy_runtime_api::client::runtime_plugin::RuntimePlugin;
use aws_smithy_types::config_bag::{FrozenLayer, Layer};

use crate::service::{DynamoDb, Sqs};

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

fn codec_of(operation: &dyn RuntimePlugin) -> FrozenLayer {
    let config = operation.config();
    config.unwrap_or_else(|| Layer::new("an operation without a codec").freeze())
}
