"""What is declared for Azure, the emulators and CI, held against the code: nothing here can compile or deploy it."""
