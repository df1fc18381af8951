//! Retrieval: one contract for every engine ([`backend`]), the index that is part of raglan
//! (`embedded`), results of several knowledge bases in one list (`merge`) and answers made of
//! sentences that stand in the passages (`answer`).

pub mod backend;
