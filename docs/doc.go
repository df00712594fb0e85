// Package docs holds the documents, and tests that compare them with the code: settings and their defaults, environment
// variables, examples, links, the functions that are named, the columns of the schema. There is no code in it.
package docs
