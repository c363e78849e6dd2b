//! The documents: their sessions, snippets, programs and links; and the rules of the sources.

mod blocks;
mod configurations;
mod figures;
mod layers;
mod links;
mod operator;
mod options;
mod prefixes;
mod programs;
mod recipes;
mod sessions;
mod snippets;
