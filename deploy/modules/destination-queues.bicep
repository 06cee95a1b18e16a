// The storage queues of one destination: the app sends to them and looks how full they are; those whom they are for take
// messages out, and put what they could not take into the poison queue beside.
param accountName string

@description('The names of its queues.')
param receivers string[]

@description('The identity that receives.')
param receiverPrincipalId string
param principalId string

var messageSender = 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'
var dataReader = '19e7f393-937e-4f77-808e-94535e297925'
var dataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' existing = {
  parent: account
  name: 'default'
}

resource queues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in receivers: {
  parent: queueService
  name: name
}]

resource poisonQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [for name in receivers: {
  parent: queueService
  name: '${name}-poison'
}]

resource senders 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers)): {
  name: guid(queues[index].id, principalId, messageSender)
  scope: queues[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', messageSender)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

// Whether a queue is there, which the dependencies' call asks, is for readers.
resource readers 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers)): {
  name: guid(queues[index].id, principalId, dataReader)
  scope: queues[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataReader)
    principalId: principalId
    principalType: 'ServicePrincipal'
  }
}]

resource receiverRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers)): {
  name: guid(queues[index].id, receiverPrincipalId, dataContributor)
  scope: queues[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataContributor)
    principalId: receiverPrincipalId
    principalType: 'ServicePrincipal'
  }
}]

resource poisonRoles 'Microsoft.Authorization/roleAssignments@2022-04-01' = [for index in range(0, length(receivers)): {
  name: guid(poisonQueues[index].id, receiverPrincipalId, dataContributor)
  scope: poisonQueues[index]
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', dataContributor)
    principalId: receiverPrincipalId
    principalType: 'ServicePrincipal'
  }
}]
