//! Every decision of Drover and every document it renders, as pure functions of values.
