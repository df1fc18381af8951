//! Retrieval: one contract for every engine ([`backend`]), the index that is part of raglan
//! ([`embedded`]), filters once more on what an engine found ([`filter_check`]), results of several
//! knowledge bases in one list ([`merge`]), answers made of sentences that stand in the passages
//! ([`answer`]), and what a model may be asked ([`generate`]) and is believed ([`generated`]) where one
//! writes the answer. [`follow_up`] reads questions in their conversation. [`evaluation`] measures rankings. [`runs`] is what all of them take for a word.

pub mod answer;
pub mod backend;
pub mod embedded;
pub mod evaluation;
mod evidence;
pub mod filter_check;
pub mod follow_up;
pub mod generate;
pub mod generated;
pub mod merge;
pub mod runs;
mod sentences;
pub mod stem;
mod stop_words;
