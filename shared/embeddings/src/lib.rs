//! Vectors of texts, from a model behind OpenAI's `POST /embeddings`: vLLM, Ollama, LiteLLM, NVIDIA NIM,
//! Text Embeddings Inference and others speak it.

pub mod configuration;
pub mod openai;

pub use configuration::EmbeddingsConfiguration;
pub use openai::OpenAiEmbedder;
