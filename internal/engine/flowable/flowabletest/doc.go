// Package flowabletest runs a real Flowable for tests: its REST API on Spring Boot with H2, built by Maven from the
// folder java, whose pom.xml names all versions.
//
// What is built is kept in the user's cache, under the hash of its sources. A Server ends with the process that started
// it, however that ends.
package flowabletest
