// Command once is the program of init containers: it ends at once.
package main

func main() {}
