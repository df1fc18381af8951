//! The commands as an operator types them, on the trail of real requests.

mod integrity;
mod reading;
