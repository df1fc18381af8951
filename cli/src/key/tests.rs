//! The commands as an operator types them, on a local system, with real requests in between.

mod life;
mod safety;
mod shown;
mod trail;
