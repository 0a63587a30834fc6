module quorate.example/pause

go 1.21
