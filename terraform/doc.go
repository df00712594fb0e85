// Package terraform holds what is checked about the Terraform module in this folder. The module itself is HCL; see README.md.
//
// What needs no terraform runs with every test: that the README has the inputs and outputs, that defaults are the functions'
// own, that alerts name metrics which exist and have a runbook each, that the operators' database role covers the schema.
// What needs terraform runs with `make terraform`, which says so where it is not installed.
package terraform
